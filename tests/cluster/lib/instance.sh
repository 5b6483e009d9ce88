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

# allocate_instance: takes the lowest free number for $dir, after removing clusters whose owner is dead
allocate_instance() {
  local lock
  mkdir -p "$registry"
  exec {lock}>"$registry/lock"
  flock --wait 60 "$lock" || die "another copy holds $registry/lock for a minute"
  reclaim_orphans
  claim_folder
  for ((instance = 0; instance < most_instances; instance++)); do
    if [ ! -e "$registry/$instance" ] && [ -z "$(ip -4 route show root "10.$((89 + instance)).0.0/16")" ]; then
      mkdir "$registry/$instance"
      echo "$dir" >"$registry/$instance/dir"
      write_owner $$
      echo "$instance" >"$dir/instance"
      exec {lock}>&-
      return
    fi
  done
  die "all $most_instances instances are taken, see $registry"
}

# claim_folder: down removes the whole folder, so it must be the cluster's own: new, empty, or left by one that is gone
claim_folder() {
  mkdir -p "$dir"
  if [ -s "$dir/instance" ]; then
    instance=$(cat "$dir/instance")
    ! registered || die "a cluster runs in $dir already"
    rm -rf "$dir"
    mkdir "$dir"
  fi
  [ -z "$(ls -A "$dir")" ] || die "$dir is not empty, and down would remove all of it: choose a folder for the cluster alone"
}

# write_owner PID: the instance may be reclaimed when that process is dead
write_owner() { echo "$1 $(start_time "$1")" >"$registry/$instance/owner"; }

reclaim_orphans() {
  local entry pid started
  for entry in "$registry"/[0-9]*; do
    [ -e "$entry" ] || continue
    if read -r pid started 2>/dev/null <"$entry/owner" && [ "$(start_time "$pid")" = "$started" ]; then
      continue
    fi
    say "cluster: instance ${entry##*/} lost its owner: removing it"
    (
      instance=${entry##*/}
      dir=$(cat "$entry/dir")
      derive_names
      remove_everything
    )
  done
}

# registered: numbers are reused, so what a folder says of its own proves nothing after a reboot
registered() { [ "$(cat "$registry/$instance/dir" 2>/dev/null)" = "$dir" ]; }

# load_instance: the running cluster of $dir
load_instance() {
  [ -n "$dir" ] || die "which cluster? Give --dir DIR, or set LOCKSTEP_CLUSTER"
  dir=$(realpath "$dir")
  [ -s "$dir/instance" ] || die "no cluster in $dir"
  instance=$(cat "$dir/instance")
  registered || die "the cluster of $dir is gone: remove the folder"
  derive_names
}
