#!/usr/bin/env bash
# programs/build.sh              compiles the cluster's programs from the Go module proxy, pinned by */go.mod and go.sum,
#                                into $LOCKSTEP_CACHE/cluster/<hash of this folder>/bin; what is there stays as it is
# programs/build.sh --print-bin  that folder
# programs/build.sh --newest     compiles the parts of a newer Kubernetes, which tests of its newest resources want: nothing else does
# programs/build.sh --print-newest-bin  their folder
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../lib/common.sh"

oldest_go=1.25
toolchain=v0.0.1-go1.25.5.linux-amd64
kubernetes=1.34.4
newest_oldest_go=1.26
newest_toolchain=v0.0.1-go1.26.8.linux-amd64
newest_kubernetes=1.36.3
helm=3.19.5
components=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl etcd coredns kwok kube-network-policies fake-gpus)
newest_components=(kube-apiserver kube-controller-manager kube-scheduler)

# hash_of FIND-EXPRESSION…: of the files of this folder that it names
hash_of() { (cd "$here" && find . "$@" -type f -print | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16); }

home=$cache/cluster/$(hash_of -path ./newest -prune -o)
bin=$home/bin
newest_home=$cache/cluster/newest-$(hash_of -path './newest/*')
newest_bin=$newest_home/bin

go_is_new_enough() {
  local have
  have=$(command -v go >/dev/null && go env GOVERSION) || return 1
  [ "$(printf '%s\n' "$oldest_go" "${have#go}" | sort -V | head -1)" = "$oldest_go" ]
}

# Debian's Go is too old to compile Kubernetes, but it can fetch a newer one: toolchains are modules of the proxy.
install_go() {
  go_is_new_enough && return
  local sdk=$cache/go/$toolchain start=$EPOCHREALTIME fetched
  if [ ! -x "$sdk/bin/go" ]; then
    command -v go >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends golang-go >/dev/null; }
    fetched=$(cd / && go mod download -json "golang.org/toolchain@$toolchain" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    mkdir -p "$cache/go"
    rm -rf "$sdk.partial"
    cp -r "$fetched" "$sdk.partial"
    chmod -R u+w "$sdk.partial"
    chmod +x "$sdk.partial"/bin/* "$sdk.partial"/pkg/tool/*/*
    mv "$sdk.partial" "$sdk"
    say "cluster: Go $toolchain fetched in $(elapsed "$start") s"
  fi
  PATH=$sdk/bin:$PATH
}

# build NAME FOLDER PACKAGE [go build flags…]
build() {
  local name=$1 folder=$2 package=$3 start=$EPOCHREALTIME
  shift 3
  if [ -x "$bin/$name" ]; then
    return
  fi
  say "cluster: compiling $name"
  (cd "$here/$folder" && CGO_ENABLED=0 GOFLAGS='' GOTOOLCHAIN=local \
    nice go build -mod=readonly -buildvcs=false -trimpath "$@" -o "$bin/$name.partial" "$package")
  mv "$bin/$name.partial" "$bin/$name"
  say "cluster: $name done in $(elapsed "$start") s"
}

kubernetes_flags() {
  local package
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    printf -- '-X %s.%s ' "$package" "gitVersion=v$kubernetes" "$package" gitMajor=1 \
      "$package" "gitMinor=$(cut -d. -f2 <<<"$kubernetes")" "$package" gitTreeState=clean \
      "$package" buildDate=2026-01-01T00:00:00Z
  done
}

# CoreDNS sets a field that this client-go no longer has: compile a copy without that line, named by a go.mod of its own.
patch_coredns() {
  local fetched
  export GOFLAGS='' GOTOOLCHAIN=local
  fetched=$(cd "$here/kubernetes" && go mod download github.com/coredns/coredns &&
    go list -m -f '{{.Dir}}' github.com/coredns/coredns)
  rm -rf "$home/coredns"
  cp -r --no-preserve=mode "$fetched" "$home/coredns"
  sed -i '/RetryOnError:/d' "$home/coredns/plugin/kubernetes/object/informer.go"
  cp "$here"/kubernetes/go.{mod,sum} "$home"
  go mod edit -replace "github.com/coredns/coredns=$home/coredns" "$home/go.mod"
}

build_kubernetes() {
  local component
  [ -x "$bin/hyperkube" ] || patch_coredns
  build hyperkube kubernetes . -modfile "$home/go.mod" -ldflags "-s -w $(kubernetes_flags)"
  for component in "${components[@]}"; do
    ln -sf hyperkube "$bin/$component"
  done
}

lock() { # lock NAME
  mkdir -p "$bin"
  exec {lock}>"$cache/cluster/$1.lock"
  flock "$lock"
}

build_all() {
  lock install
  if [ ! -e "$home/.complete" ]; then
    install_go
    build_kubernetes
    build versitygw versitygw github.com/versity/versitygw/cmd/versitygw -ldflags '-s -w'
    build helm helm helm.sh/helm/v3/cmd/helm \
      -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v$helm"
    touch "$home/.complete"
  fi
  say "cluster: programs: $bin"
}

build_newest() {
  local bin=$newest_bin kubernetes=$newest_kubernetes oldest_go=$newest_oldest_go toolchain=$newest_toolchain component
  lock newest
  install_go
  build hyperkube newest . -ldflags "-s -w $(kubernetes_flags)"
  for component in "${newest_components[@]}"; do
    ln -sf hyperkube "$bin/$component"
  done
  say "cluster: parts of Kubernetes $kubernetes: $bin"
}

case ${1:-} in
  --print-bin) echo "$bin" ;;
  --newest) build_newest ;;
  --print-newest-bin) echo "$newest_bin" ;;
  '') build_all ;;
  *) sed -n 2,6p "$0"; exit 2 ;;
esac
