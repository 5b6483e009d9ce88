#!/usr/bin/env bash
# node_init.sh NODE ADDRESS DIR BIN: the first process of a node's namespaces. The machine's state folders disappear behind
# the node's own; then containerd, kube-proxy, the kubelet and, if asked for, what enforces network policies run until one of them
# ends, which ends the node.
set -euo pipefail
node=$1 address=$2 dir=$3 bin=$4
home=$dir/$node
export PATH=$PATH:/usr/sbin:/sbin
socket=/run/containerd/containerd.sock

hide_machine() {
  hostname "$node"
  mount --bind "$home/var-lib" /var/lib
  mount --bind "$home/var-log" /var/log
  mount -t tmpfs tmpfs /run
  mount --make-shared /var/lib
  mount --make-shared /run
  rm -rf /var/lib/cni  # addresses given to pods of an earlier life
  mkdir -p /var/lib/kubelet /run/lock
}

start_containerd() {
  local deadline=$((SECONDS + 60))
  # A node reaches nothing through a proxy of the machine; without this a pull would try.
  NO_PROXY='*' containerd --config "$home/etc/containerd.toml" >>"$dir/log/$node-containerd.log" 2>&1 &
  containerd=$!
  until ctr --address "$socket" version >/dev/null 2>&1; do
    if ((SECONDS >= deadline)) || ! kill -0 "$containerd"; then
      echo "containerd does not answer:"
      tail -n 20 "$dir/log/$node-containerd.log"
      exit 1
    fi
    sleep 0.1
  done
}

import_images() {
  local archive marker
  for archive in "$dir"/images/*; do
    marker=$home/imported/$(basename "$archive")
    [ -e "$marker" ] || ctr --address "$socket" --namespace k8s.io images import "$archive"
    touch "$marker"
  done
}

start_kubernetes() {
  "$bin/kube-proxy" --config "$home/etc/kube-proxy.yaml" >>"$dir/log/$node-kube-proxy.log" 2>&1 &
  proxy=$!
  "$bin/kubelet" --config "$home/etc/kubelet.yaml" --kubeconfig "$dir/pki/$node.kubeconfig" \
    --hostname-override "$node" --node-ip "$address" >>"$dir/log/$node-kubelet.log" 2>&1 &
  kubelet=$!
}

# What goes to a pod or comes from one passes FORWARD, also where both hang on the node's bridge; what the node itself sends, such as
# the kubelet's probes, does not, as policies want it. As long as nobody reads the queue, no new connection comes through.
enforce_network_policies() {
  local kubeconfig=$dir/pki/network-policies.kubeconfig queue=100
  [ -e "$kubeconfig" ] || return 0
  sysctl -qw net.bridge.bridge-nf-call-iptables=1
  iptables-restore <<RULES
*filter
:FORWARD ACCEPT
-A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
-A FORWARD -j NFQUEUE --queue-num $queue
COMMIT
RULES
  "$bin/kube-network-policies" --kubeconfig "$kubeconfig" --hostname-override "$node" --nfqueue-id $queue \
    >>"$dir/log/$node-network-policies.log" 2>&1 &
  policies=$!
}

hide_machine
start_containerd
import_images
enforce_network_policies
start_kubernetes
wait -n "$containerd" "$proxy" "$kubelet" ${policies:+"$policies"} || true
echo "a program of $node ended; the last words of each:"
tail -n 10 "$dir/log/$node"-*.log
exit 1
