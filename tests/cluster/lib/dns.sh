# CoreDNS runs in the control plane's namespace, behind the usual kube-dns Service: it starts in a second, needs no image, and
# a test that kills a node does not take the names of the others with it.

start_dns() {
  new_user coredns "/CN=coredns"
  cat >"$dir/Corefile" <<COREFILE
.:53 {
  errors
  ready $api_address:8181
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $pki/coredns.kubeconfig
    pods insecure
    ttl 2
  }
  cache 2
}
COREFILE
  dns_address=$dns_address api_address=$api_address render "$here/config/dns.yaml" |
    "$bin/kubectl" --kubeconfig "$pki/admin.kubeconfig" --cache-dir "$dir/kubectl" apply -f - >/dev/null
  spawn_in_control coredns -conf "$dir/Corefile"
}

dns_ready() { curl -fsS --noproxy '*' --max-time 5 "http://$api_address:8181/ready"; }
