#!/usr/bin/env bash
# docker/push.sh [OPTION…] REGISTRY/PREFIX [ARCHIVE…]    pushes images; prints "REGISTRY/PREFIX/lockstep-COMPONENT:VERSION@DIGEST" for each
#
# ARCHIVE is what docker/build.sh prints; without one, docker/build.sh makes operator and worker first. A cluster takes them from
# there with: helm install … --set image.registry=REGISTRY/PREFIX, and with that prefix in the jobs' image.
#   --authfile FILE   credentials; without it skopeo's own places: $REGISTRY_AUTH_FILE, those of `skopeo login` and `docker login`
#   --plain-http      a registry on this machine without TLS: REGISTRY is localhost, 127.… or [::1]
# The digest is that of the archive, which the list of contents names: layers are pushed as they are, not compressed.
# Needs what .ci/install brings (skopeo).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
version=$(cat "$root/VERSION")

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }
fail() { echo "docker/push.sh: $*" >&2; exit 1; }
wrong() { echo "docker/push.sh: $*" >&2; usage >&2; exit 2; }

options=(--quiet --preserve-digests)
plain_http=false
while [ $# -gt 0 ]; do
  case $1 in
    --authfile) [ -f "${2:-}" ] || wrong "--authfile needs a file; '${2:-}' is none"; options+=(--authfile "$2"); shift ;;
    --plain-http) plain_http=true; options+=(--dest-tls-verify=false) ;;
    --help) usage; exit 0 ;;
    -*) wrong "unknown option $1" ;;
    *) break ;;
  esac
  shift
done
prefix=${1:-}
prefix=${prefix%/}
[ -n "$prefix" ] || wrong "it needs a registry, such as registry.example/team"
[[ $prefix != *://* ]] || wrong "$prefix is a URL; a registry is written without a scheme, such as registry.example/team"
# Without TLS, whoever is between this machine and the registry reads the credentials and changes the images.
! $plain_http || [[ $prefix =~ ^(localhost|127\.[0-9.]+|\[::1\])(:[0-9]+)?(/|$) ]] ||
  wrong "--plain-http is for a registry on this machine; ${prefix%%/*} needs TLS"
archives=("${@:2}")
command -v skopeo >/dev/null || fail "skopeo is missing; run: .ci/install"

if [ ${#archives[@]} = 0 ]; then
  built=$("$root/docker/build.sh" all)
  mapfile -t archives < <(awk '{ print $1 }' <<<"$built")
fi
digest_file=$(mktemp)
trap 'rm -f "$digest_file"' EXIT
for archive in "${archives[@]}"; do
  [ -f "$archive" ] || fail "$archive does not exist; docker/build.sh prints the archives that it makes"
  name=$prefix/$(basename "$archive" .tar):$version
  skopeo copy "${options[@]}" --digestfile "$digest_file" "oci-archive:$archive" "docker://$name" ||
    fail "pushing $name failed; where the registry wants credentials: skopeo login ${prefix%%/*}"
  echo "$name@$(cat "$digest_file")"
done
