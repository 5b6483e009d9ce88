#!/usr/bin/env bash
# build.sh              compiles metrics-server, see tests/support/build-go-program.sh
# build.sh --print-bin  prints its folder
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../support/build-go-program.sh"
build_go_program "$here" metrics-server metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server "$@"
