# Images are OCI archives. $dir/images holds a link to each; a node imports them when it starts, running nodes at once.

# add_images ARCHIVE…: for nodes yet to start, each under a name that changes with the file
add_images() {
  local archive
  mkdir -p "$dir/images"
  for archive in "$@"; do
    archive=$(realpath "$archive")
    [ -s "$archive" ] || die "there is no image archive $archive"
    ln -sf "$archive" "$dir/images/$(stat -c '%i-%Y-%s' "$archive")-$(basename "$archive")"
  done
}

load_images() { # load_images ARCHIVE…: into all running nodes, side by side
  local start=$EPOCHREALTIME k import imports=()
  add_images "$@"
  for k in $(running_nodes); do
    import_into "$k" &
    imports+=($!)
  done
  for import in "${imports[@]}"; do
    wait "$import" || die "a node could not import $*"
  done
  say "cluster: images are on ${#imports[@]} nodes after $(elapsed "$start") s"
}

import_into() { # import_into K: what it does not have yet
  local archive marker
  for archive in "$dir"/images/*; do
    marker=$dir/$(node_name "$1")/imported/$(basename "$archive")
    [ ! -e "$marker" ] || continue
    in_node "$1" ctr --namespace k8s.io images import - <"$archive" >&2
    touch "$marker"
  done
}

in_node() { # in_node K COMMAND…: as a process of that node
  local k=$1
  shift
  nsenter --target "$(first_process "$k")" --mount --net --pid --uts --ipc "$@"
}
