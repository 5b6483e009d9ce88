#!/usr/bin/env bash
# tests/dashboards/install.sh            Debian's Chromium, node and the font Inter; Grafana's components from npm, pinned by
#                                        package-lock.json, into $LOCKSTEP_CACHE/dashboards/<hash>: 660 MB, minutes. What is there
#                                        stays as it is.
# tests/dashboards/install.sh --print    that folder
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../cluster/lib/common.sh"

site=$cache/dashboards/$(cd "$here" && sha256sum package.json package-lock.json | sha256sum | cut -c1-16)

# Only what is missing: a node that did not come from Debian does not go with Debian's npm.
install_debian() {
  local missing=()
  command -v chromium >/dev/null || missing+=(chromium)
  command -v node >/dev/null || missing+=(nodejs)
  command -v npm >/dev/null || missing+=(npm)
  [ -d /usr/share/fonts/opentype/inter ] || missing+=(fonts-inter)
  [ ${#missing[@]} != 0 ] || return 0
  say "dashboards: Debian packages: ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install() {
  local start=$EPOCHREALTIME
  mkdir -p "$cache/dashboards"
  exec {lock}>"$site.lock"
  flock "$lock"
  install_debian
  [ ! -e "$site/.complete" ] || return 0
  say "dashboards: installing Grafana's components"
  rm -rf "$site"
  mkdir "$site"
  cp "$here/package.json" "$here/package-lock.json" "$site/"
  # Not the peers: their ranges ask for a second React.
  (cd "$site" && nice npm ci --ignore-scripts --legacy-peer-deps --no-audit --no-fund --silent)
  touch "$site/.complete"
  say "dashboards: done in $(elapsed "$start") s"
}

case ${1:-} in
  --print) echo "$site" ;;
  '') install ;;
  *) sed -n 2,5p "$0"; exit 2 ;;
esac
