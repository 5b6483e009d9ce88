#!/usr/bin/env bash
# build.sh                      compiles helm-unittest, helm-docs, kubeconform and kube-score, see tests/support/build-go-program.sh, and
#                               fetches the definitions of ServiceMonitor, PodMonitor, PrometheusRule and Certificate
# build.sh --print-bin          the folders of the programs, as in PATH
# build.sh --print-definitions  the folder of the definitions
# helm-unittest is the newest with the Helm that tests/cluster/programs has, kubeconform the newest that its Go compiles; kube-score has
# a module of its own because it does not compile with their apimachinery.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../../../support/build-go-program.sh"

definitions=$cache/chart-tools/definitions-$(sha256sum <"$here/definitions/go.sum" | cut -c1-16)

# The folder of a module of definitions/go.mod.
fetched() {
  (cd "$here/definitions" && GOFLAGS='' GOTOOLCHAIN=local go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'
}

fetch_definitions() {
  local prometheus certmanager lock
  [ ! -e "$definitions" ] || return 0
  install_go
  mkdir -p "$cache/chart-tools"
  exec {lock}>"$definitions.lock"
  flock "$lock"
  [ ! -e "$definitions" ] || return 0
  prometheus=$(fetched github.com/prometheus-operator/prometheus-operator)
  certmanager=$(fetched github.com/cert-manager/cert-manager)
  rm -rf "$definitions.partial"
  mkdir -p "$definitions.partial"
  install -m 644 "$prometheus"/example/prometheus-operator-crd/monitoring.coreos.com_{servicemonitors,podmonitors,prometheusrules}.yaml \
    "$definitions.partial"
  # A template of Helm, of whose lines only those of the metadata are not YAML.
  grep -v '{{' "$certmanager/deploy/crds/crd-certificates.yaml" >"$definitions.partial/cert-manager.io_certificates.yaml"
  mv "$definitions.partial" "$definitions"
}

# program NAME PACKAGE FOLDER [--print-bin]
program() { build_go_program "$here/$3" chart-tools "$1" "$2" "${@:4}"; }

programs() {
  program helm-unittest github.com/helm-unittest/helm-unittest/cmd/helm-unittest . "$@"
  program helm-docs github.com/norwoodj/helm-docs/cmd/helm-docs . "$@"
  program kubeconform github.com/yannh/kubeconform/cmd/kubeconform . "$@"
  program kube-score github.com/zegl/kube-score/cmd/kube-score kube-score "$@"
}

case ${1:-} in
  --print-bin) programs --print-bin | uniq | paste -sd: ;;
  --print-definitions) echo "$definitions" ;;
  '')
    programs
    fetch_definitions
    ;;
  *) sed -n 2,5p "$0"; exit 2 ;;
esac
