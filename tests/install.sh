#!/usr/bin/env bash
# Installs the programs that only tests start, from the Go module proxy and npm; what is present stays as it is. Two calls at the same time
# wait for each other, so one may run in the background early, and a second one right before the tests.
set -euo pipefail
cd "$(dirname "$0")"

cluster/programs/build.sh --tests              # kwok, kube-network-policies, fake-gpus
integration/google_storage/server/build.sh     # a stand-in for Google's object store
integration/azure_storage/server/install.sh    # a stand-in for Azure's
integration/store_faults/proxy/build.sh        # toxiproxy
integration/chart/tools/build.sh               # helm-unittest, helm-docs, kubeconform, kube-score
e2e/metrics-server/build.sh
