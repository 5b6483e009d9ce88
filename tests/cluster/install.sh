#!/usr/bin/env bash
# Debian packages and programs of the test cluster; what is present stays as it is. From nothing the programs take minutes to
# compile, see README.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

debian=(
  ca-certificates curl openssl python3 procps iproute2 util-linux
  containerd runc containernetworking-plugins nftables iptables conntrack kmod mount
  busybox-static gcc libc6-dev prometheus
)

"$here/../../.ci/install-debian" "${debian[@]}" >&2  # `cluster up` prints its folder to standard output
"$here/programs/build.sh"
