# etcd, kube-apiserver, kube-controller-manager, kube-scheduler: TLS, RBAC and the node authorizer, as on a real cluster.

# What is off unless asked for: of a newer Kubernetes the groups of scheduling.k8s.io; else the health of a pod's devices in its status.
gates() {
  if $newest; then
    echo --feature-gates=GenericWorkload=true,GangScheduling=true
  else
    echo --feature-gates=ResourceHealthStatus=true
  fi
}
groups() { if $newest; then echo --runtime-config=scheduling.k8s.io/v1alpha2=true; fi; }

start_control_plane() {
  start_etcd
  start_apiserver
  wait_for 300 "API server is ready" kube-apiserver api_get /readyz
  start_controller_manager
  start_scheduler
  wait_for 300 "controllers run" kube-controller-manager api_get /api/v1/namespaces/default/serviceaccounts/default
}

# api_get PATH: as admin; curl starts in milliseconds, kubectl does not
api_get() {
  curl -fsS --noproxy '*' --max-time 5 --cacert "$pki/ca.crt" --cert "$pki/admin.crt" --key "$pki/admin.key" "$api_url$1"
}

start_etcd() {
  spawn_in_control etcd --name etcd --data-dir "$dir/etcd" --log-level warn --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster etcd=http://127.0.0.1:2380
}

start_apiserver() {
  spawn_in_control kube-apiserver $(gates) $(groups) --etcd-servers=http://127.0.0.1:2379 \
    --bind-address="$api_address" --advertise-address="$api_address" --secure-port=6443 \
    --service-cluster-ip-range="$services" --allow-privileged=true \
    --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file="$pki/service-account.pub" \
    --service-account-signing-key-file="$pki/service-account.key" \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement \
    --audit-policy-file="$here/config/audit.yaml" --audit-log-path="$dir/log/audit.log" \
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --kubelet-client-certificate="$pki/apiserver-kubelet.crt" --kubelet-client-key="$pki/apiserver-kubelet.key" \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file="$pki/front-proxy.crt" --proxy-client-key-file="$pki/front-proxy.key"
}

# A node that stays silent for 40 s is NotReady. Shorter, and a machine that pauses for seconds loses nodes, and the jobs their pods.
start_controller_manager() {
  local config=$pki/controller-manager.kubeconfig
  spawn_in_control kube-controller-manager $(gates) --kubeconfig="$config" --bind-address=127.0.0.1 --leader-elect=false \
    --authentication-kubeconfig="$config" --authorization-kubeconfig="$config" --use-service-account-credentials=true \
    --root-ca-file="$pki/ca.crt" --service-account-private-key-file="$pki/service-account.key" \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --requestheader-client-ca-file="$pki/front-proxy-ca.crt" \
    --node-monitor-period=2s --node-monitor-grace-period=40s --kube-api-qps=500 --kube-api-burst=1000
}

start_scheduler() {
  local config=$pki/scheduler.kubeconfig
  spawn_in_control kube-scheduler $(gates) --kubeconfig="$config" --bind-address=127.0.0.1 --leader-elect=false \
    --authentication-kubeconfig="$config" --authorization-kubeconfig="$config" --kube-api-qps=500 --kube-api-burst=1000
}
