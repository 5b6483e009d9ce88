# Certificates and kubeconfigs, by openssl with EC keys (all of the control plane's: about 0.3 s).

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"; }

new_authority() { # new_authority FILE COMMON_NAME
  new_key "$1"
  openssl req -x509 -new -key "$pki/$1.key" -sha256 -days 3650 -subj "/CN=$2" -out "$pki/$1.crt" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,digitalSignature,keyCertSign,cRLSign"
}

new_certificate() { # new_certificate FILE AUTHORITY SUBJECT [ALTERNATIVE_NAMES]
  new_key "$1"
  openssl req -new -key "$pki/$1.key" -subj "$3" |
    openssl x509 -req -sha256 -days 3650 -CA "$pki/$2.crt" -CAkey "$pki/$2.key" \
      -set_serial "0x$(openssl rand -hex 16)" -out "$pki/$1.crt" -extfile <(
        echo "basicConstraints=CA:FALSE"
        echo "keyUsage=critical,digitalSignature,keyEncipherment"
        echo "extendedKeyUsage=serverAuth,clientAuth"
        [ -z "${4:-}" ] || echo "subjectAltName=$4"
      ) 2>/dev/null
}

new_user() { # new_user FILE SUBJECT: a client certificate and the kubeconfig that uses it
  new_certificate "$1" ca "$2"
  cat >"$pki/$1.kubeconfig" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: $name, cluster: {server: "$api_url", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")}}]
contexts: [{name: $name, context: {cluster: $name, user: $1}}]
current-context: $name
YAML
}

make_pki() {
  local service=kubernetes.default.svc
  mkdir -m 700 "$pki"
  new_authority ca kubernetes-ca
  new_authority front-proxy-ca front-proxy-ca
  new_certificate front-proxy front-proxy-ca "/CN=front-proxy-client"
  new_certificate apiserver-kubelet ca "/O=system:masters/CN=kube-apiserver-kubelet-client"
  new_certificate apiserver ca "/CN=kube-apiserver" \
    "DNS:kubernetes,DNS:kubernetes.default,DNS:$service,DNS:$service.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$api_address,IP:$prefix.128.1"
  openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$pki/service-account.key"
  openssl pkey -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"
  new_user admin "/O=system:masters/CN=admin"
  new_user controller-manager "/CN=system:kube-controller-manager"
  new_user scheduler "/CN=system:kube-scheduler"
  new_user proxy "/CN=system:kube-proxy"
}

# make_node_pki K: the kubelet as client (the node authorizer knows it by this name) and as server
make_node_pki() {
  local node
  node=$(node_name "$1")
  new_user "$node" "/O=system:nodes/CN=system:node:$node"
  new_certificate "$node-serving" ca "/CN=system:node:$node" "DNS:$node,IP:$(node_address "$1")"
}
