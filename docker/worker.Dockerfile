# The worker: supervisor, rank program, LibTorch and Arrow, a data set to begin with; no Python, no compiler. With LibTorch's CUDA side
# and NVIDIA's libraries in the context's lib/ as well, the worker for GPUs.
# The build context is a staged install, not the repository:
#   cmake --install build/release --component worker --prefix STAGE
#   buildah bud -f docker/worker.Dockerfile STAGE          (docker/build.sh does both)
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
FROM ${BASE_IMAGE}

# useradd writes the day into /etc/shadow, but for this; docker/build.sh sets the times of files.
ARG SOURCE_DATE_EPOCH=0
# Unpinned: the newest of the Debian release that the programs are compiled on, security updates included.
# hadolint ignore=DL3008
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates dataset-fashion-mnist libcpprest2.10 libcurl4 libfmt9 libjpeg62-turbo libpng16-16 \
      libprometheus-cpp-core1.0 libspdlog1.10 libssl3 libstdc++6 libyaml-cpp0.7 zlib1g \
 && useradd --uid 65532 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin lockstep \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/log/*

# LibTorch's and Arrow's libraries: 500 MB that change only with their pinned versions, in a layer of their own (with CUDA, 4 GB).
# The programs find them by their RPATH, $ORIGIN/../lib.
COPY lib/ /usr/local/lib/

# What NVIDIA's container runtime brings in from the node; without GPUs nobody reads it. Which GPUs, the device plugin says.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility

ARG BASE_IMAGE
ARG TITLE=lockstep-worker
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="${TITLE}" \
      org.opencontainers.image.description="Elastic distributed training worker: supervisor and C++ LibTorch runtime" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

# By number, so that the kubelet can verify runAsNonRoot.
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/lockstep", "worker"]

# What changes with every build comes last.
COPY bin/ /usr/local/bin/
