#!/usr/bin/env bash
# smoke.sh: tries on a running cluster what the end-to-end tests rely on. Uses the cluster that LOCKSTEP_CLUSTER names (it needs
# two nodes, --s3 and --prometheus; one node dies and comes back), else starts one and takes it down again.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
passed=0
failed=0

# check WHAT COMMAND…: counts; tells the last words of what failed
check() {
  local what=$1 output
  shift
  if output=$("$@" 2>&1); then
    passed=$((passed + 1))
    echo "ok   $what"
  else
    failed=$((failed + 1))
    echo "FAIL $what: $(tail -n 3 <<<"$output")"
  fi
}

# within SECONDS COMMAND…: until it succeeds
within() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.2
  done
}

# says TEXT COMMAND…: does its output contain TEXT?
says() {
  local text=$1 output
  shift
  output=$("$@") || return
  [[ $output == *"$text"* ]] || { echo "expected $text, got: $output" && return 1; }
}

kube() { kubectl --namespace "$space" "$@"; }
field() { kube get "$1" -o "jsonpath={$2}"; }
fetch() { curl -fsS --noproxy '*' --max-time 60 "$@"; }
call() { kube exec caller -- "$@"; }
call_fetch() { call curl -fsS --max-time 60 "$@"; }

# call_api PATH: the status that the API server gives to the pod's own token
call_api() {
  # shellcheck disable=SC2016
  call sh -c 'cd /var/run/secrets/kubernetes.io/serviceaccount && curl -s --max-time 60 --cacert ca.crt -o /dev/null \
    -w "%{http_code}" -H "Authorization: Bearer $(cat token)" "https://kubernetes.default.svc$0"' "$1"
}

s3() { # s3 COMMAND… of a curl that signs
  "$@" -sS --max-time 60 --aws-sigv4 "aws:amz:$AWS_REGION:s3" --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD'
}

both_backends() {
  local answers
  # shellcheck disable=SC2016
  answers=$(call sh -c 'for i in $(seq 30); do curl -fsS --max-time 60 http://balanced/ || exit 1; done | sort -u | wc -l')
  [ "$answers" = 2 ]
}

forwarded_port() {
  local forward result=0 port
  kube port-forward pod/server-0 :8080 >"$work/forward" 2>&1 &
  forward=$!
  within 600 grep -q '^Forwarding from 127' "$work/forward" || result=1
  port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' "$work/forward")
  says server-0 fetch "http://127.0.0.1:$port/" || result=1
  kill "$forward"
  return $result
}

scraped() { # the series of server-0, with its labels
  says '"42"' fetch --get "$LOCKSTEP_PROMETHEUS_URL/api/v1/query" \
    --data-urlencode "query=smoke_value{namespace=\"$space\",pod=\"server-0\",app=\"server\",job_name=\"mine\"}"
}

no_way_out() { # no_way_out NAMESPACE: 198.51.100.0/24 is set aside for examples, so nobody has a nearer route
  ! ip netns exec "$1" ip route get 198.51.100.1
}

no_way_out_of_pods() { ! call curl -s --max-time 3 -o /dev/null http://198.51.100.1; }

node_condition() { kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'; }

check_pods() {
  check "stateful set rolls out" kube rollout status statefulset/server --timeout=600s
  check "caller is ready" kube wait --for=condition=Ready pod/caller --timeout=600s
  check "one server on each node" [ "$(field pod/server-0 .spec.nodeName)" != "$(field pod/server-1 .spec.nodeName)" ]
  check "memory limit kills" within 600 says OOMKilled field pod/greedy '.status.containerStatuses[0].lastState.terminated.reason'
  check "exit code" within 600 says 3 field pod/failing '.status.containerStatuses[0].state.terminated.exitCode'
  check "termination message" says reason field pod/failing '.status.containerStatuses[0].state.terminated.message'
  check "logs" says serving kube logs server-0
  check "exec with input" says hello kube exec -i caller -- cat <<<hello
  check "port-forward" forwarded_port
}

check_network() {
  local k
  for k in 0 1; do
    check "pod to pod, server-$k" within 600 says "server-$k" call_fetch "http://$(field pod/server-$k .status.podIP):8080/"
    check "machine to pod, server-$k" within 600 says "server-$k" fetch "http://$(field pod/server-$k .status.podIP):8080/"
    check "headless name, server-$k" within 600 says "server-$k" call_fetch "http://server-$k.headless:8080/"
  done
  check "full name" says server-0 call_fetch "http://server-0.headless.$space.svc.cluster.local:8080/"
  check "service reaches both" within 600 both_backends
  check "machine to service" within 600 says server- fetch "http://$(field service/balanced .spec.clusterIP)/"
  check "pod reaches itself through its service" kube exec server-0 -- sh -c \
    'for i in 1 2 3 4 5 6 7 8; do curl -fsS --max-time 60 http://balanced/ || exit 1; done'
  check "no way out of pods" no_way_out_of_pods
}

check_namespaces() {
  local instance space
  instance=ls$(cat "$LOCKSTEP_CLUSTER/instance")
  for space in cp n1 n2; do
    check "no way out of $instance-$space" no_way_out "$instance-$space"
  done
}

check_access() {
  check "API server knows the pod's token" says 200 call_api "/api/v1/namespaces/$space/pods"
  check "RBAC refuses what the role lacks" says 403 call_api "/api/v1/namespaces/$space/secrets"
}

check_servers() {
  local object=$AWS_ENDPOINT_URL/smoke/folder/object
  check "make-bucket" "$here/cluster" make-bucket smoke
  check "make-bucket again" "$here/cluster" make-bucket smoke
  check "machine writes an object" s3 curl -f -X PUT --data-binary content "$object"
  check "pod reads it" says content s3 call curl -f "$object"
  check "S3 refuses the unsigned" says 403 curl -s --noproxy '*' -o /dev/null -w '%{http_code}' "$object"
  check "Prometheus scrapes what is annotated" within 600 scraped
  check "helm reaches the cluster" helm list
}

check_node_death() {
  local pod
  pod=$(kube get pods --selector app=server --field-selector spec.nodeName=node2 -o name)
  check "kill-node 2" "$here/cluster" kill-node 2
  check "node2 is found dead" within 600 says Unknown node_condition node2
  check "start-node 2" "$here/cluster" start-node 2
  check "node2 is ready" says True node_condition node2
  check "$pod is started again" within 600 says 1 field "$pod" '.status.containerStatuses[0].restartCount'
  check "stateful set is whole" kube rollout status statefulset/server --timeout=600s
}

main() {
  kubectl create namespace "$space" >/dev/null
  kube apply -f "$here/smoke.yaml" >/dev/null
  check_pods
  check_network
  check_namespaces
  check_access
  check_servers
  check_node_death
  kubectl delete namespace "$space" --wait=false >/dev/null
  echo "$passed passed, $failed failed"
  [ "$failed" = 0 ]
}

work=$(mktemp -d)
space=smoke-$$
trap 'rm -rf "$work"' EXIT
if [ -z "${LOCKSTEP_CLUSTER:-}" ]; then
  own=$("$here/cluster" up --nodes 2 --s3 --prometheus --owner $$)
  trap 'rm -rf "$work"; "$here/cluster" down --dir "$own"' EXIT
fi
environment=$("$here/cluster" env --dir "${own:-$LOCKSTEP_CLUSTER}")
eval "$environment"
main
