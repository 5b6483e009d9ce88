# Images are OCI archives. $dir/images holds a link to each; a node imports them when it starts, running nodes at once.

# add_image ARCHIVE: for nodes yet to start, under a name that changes with the file
add_image() {
  local archive
  archive=$(realpath "$1") && [ -s "$archive" ] || die "no image archive at $1"
  mkdir -p "$dir/images"
  ln -sf "$archive" "$dir/images/$(stat -c '%i-%Y-%s' "$archive")-$(basename "$archive")"
}

load_images() { # load_images ARCHIVE…: into all running nodes, side by side
  local start=$EPOCHREALTIME archive k import imports=()
  for archive in "$@"; do
    add_image "$archive"
  done
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
