# Sourced: build_go_program FOLDER CACHE PROGRAM PACKAGE [--print-bin]
# Compiles PACKAGE as PROGRAM from the Go module proxy, pinned by FOLDER's go.mod and go.sum, into $LOCKSTEP_CACHE/CACHE/<their hash>; what
# is there stays as it is, and calls at the same time wait for each other. --print-bin: prints that folder instead.
# Each has a folder of its own, not one in tests/cluster/programs: those are all linked again when one of them changes.
. "$(dirname "${BASH_SOURCE[0]}")/../cluster/lib/common.sh"
. "$(dirname "${BASH_SOURCE[0]}")/../cluster/lib/go.sh"

build_go_program() {
  local here=$1 name=$2 program=$3 package=$4 bin lock
  bin=$cache/$name/$(cd "$here" && sha256sum go.mod go.sum | sha256sum | cut -c1-16)
  case ${5:-} in
    --print-bin) echo "$bin"; return ;;
    '') ;;
    *) die "no such argument: $5; only --print-bin" ;;
  esac
  [ ! -x "$bin/$program" ] || return 0
  mkdir -p "$bin"
  exec {lock}>"$bin/lock"
  flock "$lock"
  if [ ! -x "$bin/$program" ]; then
    install_go
    compile "$bin/$program" "$here" "$package" -ldflags '-s -w'
  fi
  exec {lock}>&-  # the next program of the same folder takes it again
}
