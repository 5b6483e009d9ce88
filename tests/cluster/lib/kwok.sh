# Simulated nodes for scale: kwok reports them Ready and lets their pods run, without a container anywhere. Their taint
# kwok.x-k8s.io/node=fake:NoSchedule keeps pods away that do not tolerate it.

start_kwok() { # start_kwok COUNT
  spawn_in_control kwok --config="$here/config/kwok.yaml" --kubeconfig="$pki/admin.kubeconfig" --manage-all-nodes=false \
    --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-ip="$api_address" \
    --node-lease-duration-seconds=40 --cidr="$prefix.64.0/18" --server-address=127.0.0.1:10247
  "$here/lib/simulated_nodes.py" "$api_address" 6443 "$pki" "$1"
  wait_for $((60 + $1 / 5)) "$1 simulated nodes are ready" kwok simulated_ready "$1"
}

simulated_ready() {
  local ready
  ready=$(api_get "/api/v1/nodes?labelSelector=type%3Dkwok&pretty=false" | grep -o '"type":"Ready","status":"True"' | wc -l)
  [ "$ready" -ge "$1" ]
}
