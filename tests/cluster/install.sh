#!/usr/bin/env bash
# Debian packages and programs of the test cluster; what is present stays as it is. From nothing the programs take minutes to
# compile, see README.md.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/lib/common.sh"

debian=(
  ca-certificates curl openssl python3 procps iproute2 util-linux
  containerd runc containernetworking-plugins nftables iptables conntrack kmod mount
  busybox-static gcc libc6-dev prometheus
)

install_debian() {
  local missing=() package start=$EPOCHREALTIME
  for package in "${debian[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    say "cluster: Debian packages: all ${#debian[@]} present"
    return
  fi
  say "cluster: Debian packages: ${missing[*]}"
  apt-get update -qq
  without_services env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  say "cluster: Debian packages done in $(elapsed "$start") s"
}

# without_services COMMAND…: Debian would start containerd and prometheus as services of the machine
without_services() {
  local policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ]; then
    "$@"
    return
  fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
  local result=0
  "$@" || result=$?
  rm -f "$policy"
  return $result
}

install_debian
"$here/programs/build.sh"
