#!/usr/bin/env bash
# server/install.sh              installs Azurite from npm, pinned by package-lock.json, into
#                                $LOCKSTEP_CACHE/azure-storage/<hash of this folder>; what is there stays as it is
# server/install.sh --print-bin  the folder of its programs there
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../../cluster/lib/common.sh"

site=$cache/azure-storage/$(cd "$here" && sha256sum package.json package-lock.json install.sh | sha256sum | cut -c1-16)

install_node() {
  command -v node >/dev/null && command -v npm >/dev/null && return
  say "azure-storage: Debian packages: nodejs npm"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
}

install() {
  local start=$EPOCHREALTIME
  mkdir -p "$cache/azure-storage"
  exec {lock}>"$site.lock"
  flock "$lock"
  [ ! -e "$site/.complete" ] || return 0
  install_node
  say "azure-storage: installing Azurite"
  rm -rf "$site"
  mkdir "$site"
  cp "$here/package.json" "$here/package-lock.json" "$site/"
  (cd "$site" && nice npm ci --omit=dev --ignore-scripts --no-audit --no-fund --silent)
  touch "$site/.complete"
  say "azure-storage: done in $(elapsed "$start") s"
}

case ${1:-} in
  --print-bin) echo "$site/node_modules/.bin" ;;
  '') install ;;
  *) sed -n 2,4p "$0"; exit 2 ;;
esac
