#!/usr/bin/env bash
# docker/build.sh [operator|worker|worker-cuda|all] [--stage DIR]    build the images; prints "ARCHIVE  SIZE MB" for each
#
# Compiles nothing: the programs come from the release build (cmake --build --preset release), laid out by
# docker/stage.sh; with --stage they come from DIR/COMPONENT, laid out likewise (bin/, lib/). The recipe is docker/Dockerfile.
# Each image ends as an OCI archive, named by the hash of all that went into it, so an unchanged image costs the hashing:
#   $LOCKSTEP_CACHE/images/HASH/lockstep-COMPONENT.tar
#   $LOCKSTEP_CACHE/images/HASH/lockstep-COMPONENT.cdx.json    what is in it (docker/sbom.py)
#   ctr --namespace k8s.io images import ARCHIVE    makes it localhost/lockstep-COMPONENT:VERSION on a node
# `all` leaves out worker-cuda, which wants `.ci/install --cuda-image` first.
# Needs root and what .ci/install brings. Everything stays under $LOCKSTEP_CACHE/images, nothing in the machine's own storage.
#   LOCKSTEP_BUILD_DIR   the release build [build/release]
#   LOCKSTEP_REVISION    source revision for the image's labels [unknown]; part of the hash, so meant for releases
#   SOURCE_DATE_EPOCH    the time of everything in the image [0]; part of the hash
#   STORAGE_DRIVER       buildah's storage driver [overlay, or vfs where overlay does not work]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
images=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}/images
build_dir=${LOCKSTEP_BUILD_DIR:-$root/build/release}
revision=${LOCKSTEP_REVISION:-unknown}
version=$(cat "$root/VERSION")
epoch=${SOURCE_DATE_EPOCH:-0}
suite=bookworm
worker_limit_mb=900
archives_kept=3
# What Debian's own slim images leave out as well; /usr is merged from the start, since the package that merges it needs Perl.
slim=(--variant=minbase --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged
      --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*'
      --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/doc/*'
      --dpkgopt='path-include=/usr/share/doc/*/copyright')

usage() { sed -n '2,16s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
log() { echo "docker/build.sh: $*" >&2; }
fail() { log "$*"; exit 1; }
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

storage() { buildah --root "$images/storage" --runroot "$images/run" --storage-driver "$driver" "$@"; }

pick_driver() {
  driver=${STORAGE_DRIVER:-overlay}
  storage info >/dev/null 2>&1 && return
  log "storage driver $driver does not work here; using vfs, which copies every layer"
  driver=vfs
  storage info >/dev/null
}

# Debian's minbase under a name of ours; stands in for the Dockerfiles' debian:bookworm-slim where no registry is.
ensure_base() {
  local key rootfs start=$EPOCHREALTIME
  key=$(printf '%s\n' "$suite" "$epoch" "${slim[@]}" | sha256sum | cut -c1-16)
  base=localhost/lockstep-base:$key
  storage inspect --type image "$base" >/dev/null 2>&1 && return
  rootfs=$images/base/$key/rootfs.tar
  if [ ! -e "$rootfs" ]; then
    log "making the base from Debian $suite's packages"
    mkdir -p "${rootfs%/*}"
    SOURCE_DATE_EPOCH=$epoch quietly mmdebstrap --quiet --format=tar "${slim[@]}" "$suite" "$rootfs.partial"
    mv "$rootfs.partial" "$rootfs"
  fi
  printf 'FROM scratch\nADD rootfs.tar /\nCMD ["/bin/bash"]\n' >"$scratch/base.Dockerfile"
  quietly storage bud --isolation chroot --format oci --timestamp "$epoch" --tag "$base" --file "$scratch/base.Dockerfile" "${rootfs%/*}"
  log "base ready after $(seconds_since "$start") s"
}

# Runs a command whose output matters only if it fails.
quietly() {
  "$@" >"$scratch/log" 2>&1 && return
  cat "$scratch/log" >&2
  fail "failed: $*"
}

# Sets $stage to a folder with bin/ (and lib/) as the image of component $1 will hold them.
stage_programs() {
  if [ -n "$stage_root" ]; then
    stage=$stage_root/$1
  else
    stage=$scratch/$1
    LOCKSTEP_BUILD_DIR=$build_dir "$root/docker/stage.sh" "$1" "$stage"
  fi
  [ -d "$stage/bin" ] || fail "component $1 has no programs: $stage/bin is missing"
}

# The hash of everything that decides an image's content: recipe, base, labels, and each staged file's path, mode and bytes.
content_key() {
  {
    echo "$version $revision $epoch $base ${site##*/}"
    cat "$root/docker/Dockerfile" "$root/docker/sbom.py"
    cd "$stage"
    find . ! -type d -printf '%p %m %l\n' | LC_ALL=C sort
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
  } | sha256sum | cut -c1-16
}

# Every shared library of every program must be found inside the image by the user it runs as; else no pod would start.
# libcuda.so.1 is the driver's, which a node with GPUs brings.
check_libraries() {
  local missing
  missing=$(storage run --isolation chroot "$1" -- sh -c 'ldd /usr/local/bin/* /usr/local/lib/*.so*' 2>&1 |
    grep 'not found' | grep -v libcuda.so.1 || true)
  [ -z "$missing" ] || fail "shared libraries are missing:"$'\n'"$missing"
}

# Writes what is in container $1 of image $2 to file $3.
write_sbom() {
  local digest rootfs
  digest=$(grep -oE '[0-9a-f]{64}' "$(layout_of "$2")/index.json")
  rootfs=$(storage mount "$1")
  SOURCE_DATE_EPOCH=$epoch PYTHONPATH=$site python3 "$root/docker/sbom.py" "$(basename "${2%:*}")" "$version" "$digest" \
    "$rootfs" "${wheels[@]}" >"$3"
}

layout_of() { echo "$images/layout/${1//[:\/]/_}"; }

# "DIGEST BYTES" of each layer, lowest first, as buildah's storage holds them: not compressed.
layers_of() {
  storage inspect --type image --format '{{.Manifest}}' "$1" |
    grep -oE '[0-9a-f]{64}","size":[0-9]+' | sed '1d; s/","size":/ /'  # the first is the image's configuration
}

# Exports image $1 to archive $2 through an OCI layout that stays, so that a code change costs its own small layer.
# buildah compresses each layer that it adds to a layout but takes an uncompressed one that lies there already. So the heavy
# layers are put there as they are: compressing them would take it 10 s, and every node as long to undo. Always all but the last:
# the image's digest must not depend on which were there before.
export_archive() {
  local image=$1 archive=$2 layout digest
  layout=$(layout_of "$image")
  for digest in $(layers_of "$image" | sed '$d' | cut -d' ' -f1); do
    [ -e "$layout/blobs/sha256/$digest" ] || { seed_layout "$image" "$layout"; break; }
  done
  rm -f "$layout/index.json"  # else the image before this one stays in it
  quietly storage push "$image" "oci:$layout:$image"
  prune_layout "$layout"
  tar -C "$layout" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -cf "$archive" oci-layout index.json blobs
}

seed_layout() {
  mkdir -p "${2%/*}"
  rm -rf "$2" "$2.seed"
  quietly storage push --disable-compression "$1" "dir:$2.seed"
  mkdir -p "$2/blobs/sha256"
  find "$2.seed" -type f -regextype posix-extended -regex '.*/[0-9a-f]{64}' -exec mv -t "$2/blobs/sha256" {} +
  rm -rf "$2.seed" "$2/blobs/sha256/$(layers_of "$1" | tail -n 1 | cut -d' ' -f1)"
}

# Removes the blobs that neither the index nor its one manifest names.
prune_layout() {
  local manifest
  manifest=$(grep -oE '[0-9a-f]{64}' "$1/index.json")
  comm -13 <(cd "$1" && grep -ohE '[0-9a-f]{64}' index.json "blobs/sha256/$manifest" | LC_ALL=C sort -u) \
    <(LC_ALL=C ls "$1/blobs/sha256") | sed "s|^|$1/blobs/sha256/|" | xargs -r rm -f
}

build_image() {
  local component=$1 image=localhost/lockstep-$1:$version key archive size_mb container start=$EPOCHREALTIME
  wheels=("$("$root/.ci/install" --print-site)")
  [ "$component" != worker-cuda ] ||
    wheels+=("$("$root/.ci/install" --print-cuda-site)" "$("$root/.ci/install" --print-cuda-image-site)")
  stage_programs "$component"
  key=$(content_key "$component")
  archive=$images/$key/lockstep-$component.tar
  if [ -e "$archive" ]; then
    touch "$archive"
    log "lockstep-$component unchanged ($(seconds_since "$start") s)"
  else
    quietly storage bud --isolation chroot --pull-never --layers --format oci --timestamp "$epoch" --tag "$image" \
      --build-arg BASE_IMAGE="$base" --build-arg VERSION="$version" --build-arg REVISION="$revision" \
      --build-arg SOURCE_DATE_EPOCH="$epoch" --target "$component" --build-context "$component-programs=$stage" \
      --file "$root/docker/Dockerfile" "$stage"
    container=$(storage from --pull-never "$image")
    check_libraries "$container"
    mkdir -p "${archive%/*}"
    layers_of "$image" | awk '{ bytes += $2 } END { printf "%d\n", bytes / 1e6 }' >"${archive%/*}/size_mb"
    export_archive "$image" "$archive.partial"
    write_sbom "$container" "$image" "${archive%.tar}.cdx.json"
    storage rm "$container" >/dev/null
    mv "$archive.partial" "$archive"
    log "lockstep-$component built in $(seconds_since "$start") s"
  fi
  size_mb=$(cat "${archive%/*}/size_mb")
  [ "$component" != worker ] || [ "$size_mb" -lt "$worker_limit_mb" ] ||
    fail "lockstep-worker has $size_mb MB, the limit is $worker_limit_mb MB"
  printf '%s  %s MB\n' "$archive" "$size_mb"
}

# Keeps the newest archives of component $1; drops layers that belong to no tagged image.
clean_up() {
  find "$images" -mindepth 2 -maxdepth 2 -name "lockstep-$1.tar" -printf '%T@ %h\n' | sort -rn |
    awk -v kept="$archives_kept" 'NR > kept { print $2 }' | xargs -r rm -rf
  storage rmi --prune >/dev/null
}

components=(operator worker)
stage_root=
while [ $# -gt 0 ]; do
  case $1 in
    operator | worker | worker-cuda) components=("$1") ;;
    all) ;;
    --stage) stage_root=$(cd "${2:?--stage needs a folder}" && pwd); shift ;;
    *) usage; [ "$1" = --help ] && exit 0; exit 2 ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || fail "must run as root: it makes a root file system and mounts layers"
for tool in buildah mmdebstrap; do
  command -v "$tool" >/dev/null || fail "$tool is missing; run: .ci/install"
done
site=$("$root/.ci/install" --print-image-site)
[ -d "$site" ] || fail "debsbom is missing; run: .ci/install"

umask 022
mkdir -p "$images"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
exec 9>"$images/lock"
flock 9  # one build at a time per cache: they share storage and layouts
pick_driver
storage rm --all >/dev/null  # what an interrupted build left behind
ensure_base
for component in "${components[@]}"; do
  build_image "$component"
  clean_up "$component"
done
