#!/usr/bin/env bash
# build.sh              compiles toxiproxy, see tests/support/build-go-program.sh
# build.sh --print-bin  prints its folder
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../../support/build-go-program.sh"
build_go_program "$here" store-faults toxiproxy github.com/Shopify/toxiproxy/v2/cmd/server "$@"
