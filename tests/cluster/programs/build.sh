#!/usr/bin/env bash
# programs/build.sh              compiles the cluster's programs from the Go module proxy, pinned by */go.mod and go.sum,
#                                into $LOCKSTEP_CACHE/cluster/<hash of this folder>/bin; what is there stays as it is
# programs/build.sh --tests      compiles what only tests start, into the same folder: kwok, kube-network-policies, fake-gpus
# programs/build.sh --print-bin  that folder
# programs/build.sh --newest     compiles the parts of a newer Kubernetes, which tests of its newest resources want: nothing else does
# programs/build.sh --print-newest-bin  their folder
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../lib/common.sh"
. "$here/../lib/go.sh"

kubernetes=1.34.4
newest_kubernetes=1.36.3
helm=3.19.5
components=(kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl etcd coredns)
test_components=(kwok kube-network-policies fake-gpus)
newest_components=(kube-apiserver kube-controller-manager kube-scheduler)

# hash_of FIND-EXPRESSION…: of the files of this folder that it names, and of how they are compiled
hash_of() { (cd "$here" && find . "$@" -type f -print | LC_ALL=C sort | xargs sha256sum ../lib/go.sh | sha256sum | cut -c1-16); }

home=$cache/cluster/$(hash_of -path ./newest -prune -o)
bin=$home/bin
newest_home=$cache/cluster/newest-$(hash_of -path './newest/*')
newest_bin=$newest_home/bin

# build NAME FOLDER PACKAGE [go build flags…]
build() { [ -x "$bin/$1" ] || compile "$bin/$1" "$here/$2" "${@:3}"; }

link_components() { # link_components PROGRAM COMPONENT…
  local component
  for component in "${@:2}"; do
    ln -sf "$1" "$bin/$component"
  done
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
  [ -x "$bin/hyperkube" ] || patch_coredns
  build hyperkube kubernetes . -modfile "$home/go.mod" -ldflags "-s -w $(kubernetes_flags)"
  link_components hyperkube "${components[@]}"
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
    build versitygw versitygw . -ldflags '-s -w'
    build_kubernetes
    build helm kubernetes helm.sh/helm/v3/cmd/helm \
      -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=v$helm"
    touch "$home/.complete"
  fi
  say "cluster: programs: $bin"
}

build_for_tests() {
  lock install
  if [ ! -x "$bin/for-tests" ]; then
    install_go
    build for-tests kubernetes ./for_tests -ldflags '-s -w'
    link_components for-tests "${test_components[@]}"
  fi
  say "cluster: programs that only tests start: $bin"
}

build_newest() {
  local bin=$newest_bin kubernetes=$newest_kubernetes
  lock newest
  install_go
  build hyperkube newest . -ldflags "-s -w $(kubernetes_flags)"
  link_components hyperkube "${newest_components[@]}"
  say "cluster: parts of Kubernetes $kubernetes: $bin"
}

case ${1:-} in
  --print-bin) echo "$bin" ;;
  --tests) build_for_tests ;;
  --newest) build_newest ;;
  --print-newest-bin) echo "$newest_bin" ;;
  '') build_all ;;
  *) sed -n 2,7p "$0"; exit 2 ;;
esac
