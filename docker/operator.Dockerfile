# The operator, and `lockstep`, which copies itself with the libraries below into pods that run a program of the user's own;
# on a Debian base, no compiler, no LibTorch.
# The build context is a staged install, not the repository:
#   cmake --install build/release --component operator --prefix STAGE
#   buildah bud -f docker/operator.Dockerfile STAGE        (docker/build.sh does both)
ARG BASE_IMAGE=docker.io/library/debian:bookworm-slim
FROM ${BASE_IMAGE}

# useradd writes the day into /etc/shadow, but for this; docker/build.sh sets the times of files.
ARG SOURCE_DATE_EPOCH=0
# Unpinned: the newest of the Debian release that the programs are compiled on, security updates included.
# hadolint ignore=DL3008
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates libcpprest2.10 libfmt9 libprometheus-cpp-core1.0 libspdlog1.10 \
      libssl3 libstdc++6 libyaml-cpp0.7 zlib1g \
 && useradd --uid 65532 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin lockstep \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/cache/ldconfig/* /var/log/*

ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lockstep-operator" \
      org.opencontainers.image.description="Kubernetes operator for elastic distributed training jobs" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"

# By number, so that the kubelet can verify runAsNonRoot.
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/lockstep-operator"]

# What changes with every build comes last.
COPY bin/ /usr/local/bin/
