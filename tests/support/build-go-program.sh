# Sourced: build_go_program FOLDER CACHE PROGRAM PACKAGE [--print-bin]
# Compiles PACKAGE as PROGRAM from the Go module proxy, pinned by FOLDER's go.mod and go.sum, into $LOCKSTEP_CACHE/CACHE/<their hash>; what
# is there stays as it is. --print-bin: prints that folder instead.
# `toolchain=goX.Y.Z`: its modules want this Go, which the one that is here fetches.
# Each has a folder of its own, not one in tests/cluster/programs: those are all compiled anew when one of them changes.
. "$(dirname "${BASH_SOURCE[0]}")/../cluster/lib/common.sh"

build_go_program() {
  local here=$1 name=$2 program=$3 package=$4 bin start=$EPOCHREALTIME lock
  bin=$cache/$name/$(cd "$here" && sha256sum go.mod go.sum | sha256sum | cut -c1-16)
  case ${5:-} in
    --print-bin) echo "$bin"; return ;;
    '') ;;
    *) die "no such argument: $5; only --print-bin" ;;
  esac
  [ ! -x "$bin/$program" ] || return 0
  # The Go that tests/cluster/programs/build.sh fetched, where Debian's is too old.
  PATH=$(printf '%s:' "$cache"/go/*/bin)$PATH
  command -v go >/dev/null || die "no Go here: tests/cluster/install.sh brings one"
  mkdir -p "$bin"
  exec {lock}>"$bin/lock"
  flock "$lock"
  say "$name: compiling $program"
  (cd "$here" && CGO_ENABLED=0 GOFLAGS='' GOTOOLCHAIN=${toolchain:-local} nice go build -mod=readonly -buildvcs=false -trimpath -ldflags '-s -w' \
    -o "$bin/$program.partial" "$package")
  mv "$bin/$program.partial" "$bin/$program"
  exec {lock}>&-  # the next program of the same folder takes it anew
  say "$name: done in $(elapsed "$start") s"
}
