# Sourced, after common.sh: how all Go programs of the tests are compiled. One version of Go and one set of flags, so that each package is
# compiled once for all of them.

toolchain=go1.26.8

# install_go: puts this Go first in PATH, unless PATH has a newer one. Debian's is too old to compile Kubernetes, but it can fetch this one:
# toolchains are modules of the proxy.
install_go() {
  local have sdk=$cache/go/$toolchain start=$EPOCHREALTIME fetched lock
  if have=$(command -v go >/dev/null && cd / && GOTOOLCHAIN=local go env GOVERSION) &&
    [ "$(printf '%s\n' "$toolchain" "$have" | sort -V | head -1)" = "$toolchain" ]; then
    return
  fi
  mkdir -p "$cache/go"
  exec {lock}>"$cache/go/lock"
  flock "$lock"
  if [ ! -x "$sdk/bin/go" ]; then
    command -v go >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends golang-go >/dev/null; }
    fetched=$(cd / && go mod download -json "golang.org/toolchain@v0.0.1-$toolchain.linux-amd64" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    rm -rf "$sdk.partial"
    cp -r "$fetched" "$sdk.partial"
    chmod -R u+w "$sdk.partial"
    chmod +x "$sdk.partial"/bin/* "$sdk.partial"/pkg/tool/*/*
    mv "$sdk.partial" "$sdk"
    say "$toolchain: fetched in $(elapsed "$start") s"
  fi
  exec {lock}>&-
  PATH=$sdk/bin:$PATH
}

# compile PROGRAM FOLDER PACKAGE [go build flags…]: compiles PACKAGE of the module in FOLDER, and writes the file PROGRAM
compile() {
  local program=$1 name=${1##*/} folder=$2 package=$3 start=$EPOCHREALTIME most
  shift 3
  export CGO_ENABLED=0 GOFLAGS='-mod=readonly -buildvcs=false -trimpath' GOTOOLCHAIN=local
  most=$(cd "$folder" && go list -deps "$@" "$package" 2> >(grep -v '^go: downloading' >&2) | wc -l)
  say "$name: compiling $most packages, or fewer where some are compiled already"
  # Without debug information, and without inlining outside of the standard library, they compile in two thirds of the time:
  # tests/cluster/README.md has the measurement.
  (cd "$folder" && GOGC=400 go build -v -gcflags=all='-dwarf=false -l' -gcflags=std=-dwarf=false "$@" \
    -o "$program.partial" "$package" 2>&1) |
    report_progress "$name" "$most"
  mv "$program.partial" "$program"
  say "$name: done in $(elapsed "$start") s"
}

# report_progress NAME MOST: reads the names of packages as they are compiled; every other line is an error, and is printed
report_progress() {
  local count=0 said=$SECONDS start=$SECONDS line
  while IFS= read -r line; do
    if [[ $line == 'go: downloading'* ]]; then
      continue
    elif [[ $line == *[[:space:]]* ]]; then
      say "$line"
      continue
    fi
    count=$((count + 1))
    if ((SECONDS >= said + 20)); then
      said=$SECONDS
      say "$1: $count of $2 packages after $((SECONDS - start)) s"
    fi
  done
}
