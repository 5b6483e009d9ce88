#!/usr/bin/env bash
# docker/stage.sh operator|worker|worker-cuda|cli FOLDER    lays out in FOLDER what an image takes from a build: bin/, lib/
# and, in share/licenses/, the licences of the libraries in lib/ and of those compiled into the programs
#
# Compiles nothing: the programs come from the release build. docker/build.sh runs it for each image, and docker/Dockerfile inside
# its own build. `cli` is for people's machines: lockstep and kubectl-lockstep for any x86-64 Linux, with the libraries they load
# and a script for each that starts it.
#   LOCKSTEP_BUILD_DIR   the release build [build/release]
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=${LOCKSTEP_BUILD_DIR:-$root/build/release}

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; }
fail() { echo "docker/stage.sh: $*" >&2; exit 1; }

install_component() { # install_component COMPONENT FOLDER
  cmake --install "$build_dir" --component "$1" --prefix "$2" --strip >/dev/null
}

# Licences of header-only libraries, by the Debian package that the programs are compiled with.
header_licences() { # header_licences FOLDER
  local package
  for package in libboost1.74-dev libcli11-dev nlohmann-json3-dev; do
    mkdir -p "$1/share/licenses/$package"
    cp -L "/usr/share/doc/$package/copyright" "$1/share/licenses/$package/"
  done
}

# Licences of the wheels of which FOLDER/lib has a library, by the name of the wheel.
wheel_licences() { # wheel_licences FOLDER SITE…
  local info licences folder=$1
  shift
  for info in $(printf '%s/*.dist-info ' "$@"); do
    cut -d, -f1 "$info/RECORD" | sed 's|.*/||' | grep -xFf <(ls "$folder/lib") >/dev/null || continue
    licences=$folder/share/licenses/$(sed -n 's/^Name: //p' "$info/METADATA" | head -1)
    mkdir -p "$licences"
    (cd "$info" && find . -type f \( -iname '*licen[cs]e*' -o -iname '*notice*' -o -path './licenses/*' \) -exec cp --parents -t "$licences" {} +)
  done
}

# Adds the CUDA side to a staged worker: ours, LibTorch's, and NVIDIA's libraries that LibTorch names. The driver comes from the node.
stage_cuda() {
  local name wheels site
  for site in --print-site --print-cuda-site --print-cuda-image-site; do
    wheels+=("$("$root/.ci/install" "$site")")
  done
  [ -d "${wheels[2]}" ] || fail "NVIDIA's libraries are missing; run: .ci/install --cuda-image (1.8 GB to download)"
  install_component cuda "$1"
  for name in c10_cuda torch_cuda torch_cuda_linalg torch_nvshmem caffe2_nvrtc; do
    cp "${wheels[0]}/torch/lib/lib$name.so" "$1/lib"
  done
  # Without what wants libraries of RDMA or MPI, and what LibTorch does not name.
  find "${wheels[@]:1}" -path '*/nvidia/*/lib/*.so*' ! -name '*_rdma*' ! -name 'nvshmem_*' ! -name '*.alt.*' \
    ! -name 'libcusolverMg*' ! -name 'libcufftw*' ! -name 'libnvblas*' -exec cp -t "$1/lib" {} +
  wheel_licences "$1" "${wheels[@]:1}"
}

stage_worker() {
  install_component worker "$1"
  header_licences "$1"
  wheel_licences "$1" "$("$root/.ci/install" --print-site)"
}

stage_cli() {
  local folder=$1 program
  header_licences "$folder"
  install_component operator "$folder/made"
  install_component kubectl "$folder/made"
  mkdir -p "$folder/bin" "$folder/lib"
  "$folder/made/bin/lockstep" copy-to "$folder/lib"
  cp "$folder/made/bin/kubectl-lockstep" "$folder/lib"
  cp "$folder/made/bin/kubectl_complete-lockstep" "$folder/bin"
  ldd "$folder/lib/kubectl-lockstep" | awk '$3 ~ "^/" { print $3 }' | xargs cp -Lt "$folder/lib"
  for program in lockstep kubectl-lockstep; do
    cat >"$folder/bin/$program" <<'SCRIPT'
#!/bin/sh
# Starts the program with the libraries it was linked with, wherever the folder lies.
lib=$(dirname "$(dirname "$(readlink -f "$0")")")/lib
exec "$lib/ld.so" --library-path "$lib" "$lib/$(basename "$0")" "$@"
SCRIPT
    chmod 755 "$folder/bin/$program"
  done
  rm -r "$folder/made"
}

[ "${1:-}" != --help ] || { usage; exit 0; }
[ $# = 2 ] || { usage >&2; exit 2; }
[ -e "$build_dir/cmake_install.cmake" ] ||
  fail "no build in $build_dir; run: cmake --preset release && cmake --build --preset release"
case $1 in
  operator) install_component operator "$2"; header_licences "$2" ;;
  worker) stage_worker "$2" ;;
  worker-cuda) stage_worker "$2"; stage_cuda "$2" ;;
  cli) stage_cli "$2" ;;
  *) usage >&2; exit 2 ;;
esac
