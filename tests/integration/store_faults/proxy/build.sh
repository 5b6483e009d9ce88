#!/usr/bin/env bash
# proxy/build.sh              compiles toxiproxy from the Go module proxy, pinned by go.mod and go.sum, into
#                             $LOCKSTEP_CACHE/store-faults/<hash of this folder>; what is there stays as it is
# proxy/build.sh --print-bin  that folder
# A folder of its own, not one of tests/cluster/programs: those are all compiled anew when one of them changes.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../../cluster/lib/common.sh"

bin=$cache/store-faults/$(cd "$here" && sha256sum go.mod go.sum build.sh | sha256sum | cut -c1-16)

build() {
  local start=$EPOCHREALTIME
  [ ! -x "$bin/toxiproxy" ] || return 0
  # The Go that tests/cluster/programs/build.sh fetched, where Debian's is too old.
  PATH=$(printf '%s:' "$cache"/go/*/bin)$PATH
  command -v go >/dev/null || die "no Go here: tests/cluster/install.sh brings one"
  mkdir -p "$bin"
  exec {lock}>"$bin/lock"
  flock "$lock"
  say "store-faults: compiling toxiproxy"
  (cd "$here" && CGO_ENABLED=0 GOFLAGS='' GOTOOLCHAIN=local nice go build -mod=readonly -buildvcs=false -trimpath -ldflags '-s -w' \
    -o "$bin/toxiproxy.partial" github.com/Shopify/toxiproxy/v2/cmd/server)
  mv "$bin/toxiproxy.partial" "$bin/toxiproxy"
  say "store-faults: done in $(elapsed "$start") s"
}

case ${1:-} in
  --print-bin) echo "$bin" ;;
  '') build ;;
  *) sed -n 2,4p "$0"; exit 2 ;;
esac
