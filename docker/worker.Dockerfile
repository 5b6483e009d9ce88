# The worker for CPU training: supervisor, rank program, LibTorch and Arrow, a data set to begin with; no Python, no compiler.
# The build context is a staged install, not the repository:
#   cmake --install build/release --component worker --prefix STAGE
#   buildah bud -f docker/worker.Dockerfile STAGE          (docker/build.sh does both)
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
FROM ${BASE_IMAGE}

# Unpinned: the newest of the Debian release that the programs are compiled on, security updates included.
# hadolint ignore=DL3008
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates dataset-fashion-mnist libcpprest2.10 libfmt9 libjpeg62-turbo libpng16-16 \
      libprometheus-cpp-core1.0 libprometheus-cpp-pull1.0 libspdlog1.10 libssl3 libstdc++6 libyaml-cpp0.7 zlib1g \
 && useradd --uid 65532 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin lockstep \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/log/*

# LibTorch's and Arrow's libraries: 500 MB that change only with their pinned versions, in a layer of their own.
# The programs find them by their RPATH, $ORIGIN/../lib.
COPY lib/ /usr/local/lib/

ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lockstep-worker" \
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
