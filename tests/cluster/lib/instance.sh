# One running cluster is an instance. Its number, taken under a lock, gives every name and address that the machine sees,
# so that copies do not clash: namespaces ls<i>-cp and ls<i>-n<k>, host interface ls<i>, addresses 10.<89+i>.0.0/16.
#   10.X.0.1         control plane, S3, Prometheus, DNS         10.X.<16+k>.0/24   pods of node k
#   10.X.0.<10+k>    node k                                     10.X.64.0/18       pods of simulated nodes
#   10.X.0.254       the machine itself                         10.X.128.0/17      services (128.1 API, 128.10 DNS)

registry=/run/lockstep-cluster  # per instance: number → folder and owner; network names are the machine's, so is this
most_instances=64
most_nodes=15

# derive_names: from $instance and $dir
derive_names() {
  prefix=10.$((89 + instance))
  name=ls$instance
  control=$name-cp
  host_link=$name
  api_address=$prefix.0.1
  host_address=$prefix.0.254
  dns_address=$prefix.128.10
  services=$prefix.128.0/17
  pods=$prefix.16.0/20
  api_url=https://$api_address:6443
  pki=$dir/pki
}

node_name() { echo "node$1"; }
node_namespace() { echo "$name-n$1"; }
node_address() { echo "$prefix.0.$((10 + $1))"; }
pod_range() { echo "$prefix.$((16 + $1)).0/24"; }

# allocate_instance DIR: takes the lowest free number; reclaims numbers whose owner is dead on the way
allocate_instance() {
  local lock
  mkdir -p "$registry"
  exec {lock}>"$registry/lock"
  flock --wait 60 "$lock" || die "another copy holds $registry/lock for a minute"
  for ((instance = 0; instance < most_instances; instance++)); do
    reclaim_if_stale
    if [ ! -e "$registry/$instance" ] && [ -z "$(ip -4 route show root "10.$((89 + instance)).0.0/16")" ]; then
      mkdir "$registry/$instance"
      echo "$1" >"$registry/$instance/dir"
      write_owner "$$"
      exec {lock}>&-
      return
    fi
  done
  die "all $most_instances instances are taken, see $registry"
}

# write_owner PID: the instance may be reclaimed when that process is dead
write_owner() { echo "$1 $(start_time "$1")" >"$registry/$instance/owner"; }

reclaim_if_stale() {
  local pid started
  [ -e "$registry/$instance" ] || return 0
  if read -r pid started 2>/dev/null <"$registry/$instance/owner" && [ "$(start_time "$pid")" = "$started" ]; then
    return 0
  fi
  say "cluster: instance $instance lost its owner: removing it"
  (dir=$(cat "$registry/$instance/dir") && derive_names && remove_everything)
}

# load_instance DIR: what `up` wrote there
load_instance() {
  dir=$1
  [ -n "$dir" ] || die "which cluster? Give --dir DIR, or set LOCKSTEP_CLUSTER"
  dir=$(realpath "$dir" 2>/dev/null) && [ -s "$dir/instance" ] || die "no cluster in $1"
  instance=$(cat "$dir/instance")
  derive_names
}
