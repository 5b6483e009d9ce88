# A node: one network, mount, process, name and IPC namespace with its own containerd, kube-proxy and kubelet. Killing the
# namespace's first process is the death of a node: everything in it is gone at once, its disk stays.

start_node() { # start_node K: returns before the node is ready
  local node
  node=$(node_name "$1")
  ! alive "$node" || die "$node is running"
  connect_node "$1"
  [ -e "$pki/$node.kubeconfig" ] || make_node_pki "$1"
  write_node_config "$1"
  # control groups of an earlier life: the kubelet would look into each of them for seconds
  remove_cgroup "$(node_namespace "$1")"
  make_cgroup "$(node_namespace "$1")"
  spawn "$node" nsenter --net="/run/netns/$(node_namespace "$1")" \
    unshare --mount --pid --fork --kill-child=KILL --mount-proc --uts --ipc \
    "$here/lib/node_init.sh" "$node" "$(node_address "$1")" "$dir" "$bin"
}

write_node_config() {
  local node home
  node=$(node_name "$1")
  home=$dir/$node
  mkdir -p "$home"/{etc/cni,var-lib,var-log,imported} "$dir/images"
  export dir node home pki dns_address pods
  node_address=$(node_address "$1") pod_range=$(pod_range "$1") cgroup=$(node_namespace "$1")
  export node_address pod_range cgroup
  render "$here/config/containerd.toml" >"$home/etc/containerd.toml"
  render "$here/config/cni.json" >"$home/etc/cni/10-pods.conflist"
  render "$here/config/kubelet.yaml" >"$home/etc/kubelet.yaml"
  render "$here/config/kube-proxy.yaml" >"$home/etc/kube-proxy.yaml"
  : >"$home/etc/resolv.conf"  # nothing outside of the cluster is to be looked up
}

# enforce_network_policies: tells the nodes, those that come later or again, too. The user may read all of the cluster.
enforce_network_policies() { new_user network-policies "/O=system:masters/CN=network-policies"; }

node_heartbeat() { # node_heartbeat K: when its kubelet last said Ready
  api_get "/api/v1/nodes/$(node_name "$1")?pretty=false" |
    grep -o '"type":"Ready","status":"True","lastHeartbeatTime":"[^"]*"' | cut -d'"' -f12
}

# node_ready K SINCE: a node that died still looks ready for a while, so only a word from this life counts
node_ready() {
  local heartbeat
  heartbeat=$(node_heartbeat "$1") && [[ ! $heartbeat < $2 ]]
}

wait_for_node() { # wait_for_node K SINCE
  wait_for 300 "$(node_name "$1") is ready" "$(node_name "$1")" node_ready "$1" "$2"
}

kill_node() { # kill_node K
  local node
  node=$(node_name "$1")
  alive "$node" || die "$node is not running"
  # the recorded process waits for the namespace's first one, which ends when the last in the namespace has gone
  kill -KILL "$(first_process "$1")"
  wait_until_gone "$node"
  rm -f "$dir/pids/$node"
}

first_process() { pgrep --parent "$(pid_of "$(node_name "$1")")"; }

running_nodes() {
  local record
  for record in "$dir"/pids/node*; do
    [ ! -e "$record" ] || ! alive "$(basename "$record")" || echo "${record##*/node}"
  done
}
