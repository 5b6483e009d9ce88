# Namespaces and links. The bridge lives in the control plane's namespace; the machine joins it through one veth with one
# address and one route, and neither namespace has a way out: no default route, no forwarding on the machine.
#
#   machine  ls0 10.89.0.254 ══ host ┐
#                          ls0-cp: bridge br0 10.89.0.1, forwards between the machine, pods and services
#   ls0-n1   eth0 10.89.0.11 ══ n1 ──┤
#   ls0-n2   eth0 10.89.0.12 ══ n2 ──┘

# spawn_in_control PROGRAM ARGUMENTS…: one of ours, in the control plane's namespace; with --newest the newest we have of it
spawn_in_control() {
  local program=$1 file=$bin/$1
  if $newest && [ -x "$newest_bin/$1" ]; then file=$newest_bin/$1; fi
  shift
  spawn "$program" nsenter --net="/run/netns/$control" "$file" "$@"
}

add_namespace() { # add_namespace NAME
  ip netns add "$1"
  ip -n "$1" link set lo up
  nsenter --net="/run/netns/$1" sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0
}

connect_control_plane() {
  add_namespace "$control"
  ip -n "$control" link add br0 type bridge
  ip -n "$control" address add "$api_address/24" dev br0
  ip -n "$control" link set br0 up
  nsenter --net="/run/netns/$control" sysctl -qw net.ipv4.conf.br0.send_redirects=0
  ip link add "$host_link" type veth peer name host netns "$control"
  ip -n "$control" link set host master br0 up
  ip address add "$host_address/24" dev "$host_link"
  ip link set "$host_link" up
  ip route add "$prefix.0.0/16" via "$api_address" dev "$host_link"
}

# connect_node K: once; its namespace outlives the node's deaths
connect_node() {
  local space other
  space=$(node_namespace "$1")
  [ ! -e "/run/netns/$space" ] || return 0
  add_namespace "$space"
  ip link add eth0 netns "$space" type veth peer name "n$1" netns "$control"
  ip -n "$control" link set "n$1" master br0 up
  ip -n "$space" link set eth0 up
  ip -n "$space" address add "$(node_address "$1")/24" dev eth0
  ip -n "$space" route add "$prefix.0.0/16" via "$api_address"  # services and the pods of later nodes
  ip -n "$control" route add "$(pod_range "$1")" via "$(node_address "$1")"
  [ "$1" != 1 ] || ip -n "$control" route add "$services" via "$(node_address 1)"  # its kube-proxy knows them
}

# disconnect: links first, at once; a namespace is freed later, when its last process has gone
disconnect() {
  local space
  ip link delete "$host_link" 2>/dev/null || true
  for space in $(namespaces); do
    ip netns pids "$space" | xargs --no-run-if-empty kill -KILL 2>/dev/null || true
    ip netns delete "$space"
  done
}

namespaces() { ip netns list | cut -d' ' -f1 | grep -E "^$name-(cp|n[0-9]+)$" || true; }
