#!/usr/bin/env bash
# build.sh              compiles fake-gcs-server, see tests/support/build-go-program.sh
# build.sh --print-bin  prints its folder
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../../support/build-go-program.sh"
build_go_program "$here" google-storage fake-gcs-server github.com/fsouza/fake-gcs-server "$@"
