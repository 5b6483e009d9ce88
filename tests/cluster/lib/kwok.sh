# Simulated nodes for scale: kwok reports them Ready and lets their pods run, without a container anywhere. Their taint
# kwok.x-k8s.io/node=fake:NoSchedule keeps pods away that do not tolerate it.

start_kwok() { # start_kwok COUNT
  spawn_in_control kwok --kubeconfig="$pki/admin.kubeconfig" --manage-all-nodes=false \
    --manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake --node-ip="$api_address" \
    --node-lease-duration-seconds=40 --cidr="$prefix.64.0/18" --server-address=127.0.0.1:10247
  simulated_nodes "$1" | "$bin/kubectl" --kubeconfig "$pki/admin.kubeconfig" create -f - >/dev/null
  wait_for $((60 + $1 / 5)) "$1 simulated nodes are ready" kwok simulated_ready "$1"
}

simulated_nodes() { # JSON: kubectl reads it several times faster than YAML
  python3 - "$1" <<'PYTHON'
import json, sys

resources = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}

def node(index):
    name = f"kwok-{index}"
    return {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64",
                       "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": f"zone-{index % 8}"}},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": resources, "capacity": resources}}

json.dump({"apiVersion": "v1", "kind": "List", "items": [node(i + 1) for i in range(int(sys.argv[1]))]}, sys.stdout)
PYTHON
}

simulated_ready() {
  local ready
  ready=$(api_get "/api/v1/nodes?labelSelector=type%3Dkwok&pretty=false" | grep -o '"type":"Ready","status":"True"' | wc -l)
  [ "$ready" -ge "$1" ]
}
