# From nothing to a running cluster, and back to nothing.

up() {
  local start=$EPOCHREALTIME
  [ -e "$bin/../.complete" ] || "$here/install.sh"
  if [ "$kwok" -gt 0 ] || $network_policies; then "$here/programs/build.sh" --tests; fi
  choose_folder
  allocate_instance
  trap abandon EXIT
  derive_names
  say "cluster: instance $instance ($prefix.0.0/16) in $dir"
  start_everything
  write_owner "${owner:-$(pid_of etcd)}"
  trap - EXIT
  say "cluster: up in $(elapsed "$start") s; it goes with: ${BASH_SOURCE[-1]} down --dir $dir"
  echo "$dir"
}

start_everything() {
  mkdir -p "$dir"/{pids,log}
  connect_control_plane
  make_pki
  if $s3; then start_s3; fi
  start_control_plane
  if $prometheus; then start_prometheus; fi
  if $network_policies; then enforce_network_policies; fi
  add_images "${archives[@]}"
  if [ "$nodes" -gt 0 ]; then start_nodes $(seq "$nodes"); fi
  if [ "$kwok" -gt 0 ]; then start_kwok "$kwok"; fi
  if $s3; then wait_for 180 "S3 server answers" versitygw s3_answers; fi
  if $prometheus; then wait_for 180 "Prometheus is ready" prometheus prometheus_ready; fi
}

# start_nodes K…: side by side, and the cluster's DNS while they start
start_nodes() {
  local k since helpers
  helpers=$("$here/images/build.sh")
  add_images "$helpers"/*
  since=$(date -u +%FT%TZ)
  for k in "$@"; do
    start_node "$k"
  done
  alive coredns || start_dns
  for k in "$@"; do
    wait_for_node "$k" "$since"
  done
  wait_for 180 "DNS answers" coredns dns_ready
}

choose_folder() {
  dir=$(realpath "${dir:-$(mktemp -d "${TMPDIR:-/tmp}/lockstep-cluster.XXXXXX")}")
  case $dir/ in
    /run/* | /var/lib/* | /var/log/*) die "$dir would be hidden from the nodes: choose another folder" ;;
  esac
}

# abandon: up failed or was interrupted
abandon() {
  say "cluster: up did not finish: removing what it started"
  remove_everything
}

down() {
  local start=$EPOCHREALTIME
  write_owner $$  # so that no other copy takes this instance for an orphan meanwhile
  remove_everything
  say "cluster: $name is down after $(elapsed "$start") s"
}

# remove_everything: each step is harmless when repeated, or when there is nothing to remove
remove_everything() {
  local k record space
  for k in $(running_nodes); do
    kill_node "$k"
  done
  for record in "$dir"/pids/*; do
    [ ! -e "$record" ] || end "$(basename "$record")"
  done
  for space in $(namespaces); do
    remove_cgroup "$space"
  done
  disconnect
  rm -rf "$dir" "${registry:?}/$instance"
}

status() {
  local record program dead=0
  for record in "$dir"/pids/*; do
    program=$(basename "$record")
    if alive "$program"; then
      echo "$program: process $(pid_of "$program")"
    else
      dead=1
      echo "$program: dead, see $dir/log/$program.log"
    fi
  done
  return $dead
}

environment() {
  cat <<SHELL
export LOCKSTEP_CLUSTER='$dir'
export KUBECONFIG='$pki/admin.kubeconfig'
export KUBECACHEDIR='$dir/kubectl'
export PATH='$bin':"\$PATH"
export NO_PROXY='$prefix.0.0/16'"\${NO_PROXY:+,\$NO_PROXY}"
SHELL
  s3_environment
  prometheus_environment
}
