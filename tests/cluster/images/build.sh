#!/usr/bin/env bash
# images/build.sh  makes the helper images and prints the folder of their archives:
#   localhost/pause:1    what containerd starts first in each pod
#   localhost/busybox:1  a shell, httpd and curl for tests
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../lib/common.sh"

busybox=/bin/busybox
curl=/usr/bin/curl
folder=$cache/cluster/images/$(cat "$here"/* "$busybox" "$curl" | sha256sum | cut -c1-16)

make_pause() { # make_pause ROOT
  mkdir "$1"
  cc -Os -static -s -o "$1/pause" "$here/pause.c"
  "$here/make_image.py" localhost/pause:1 "$1" "$partial/pause.tar" /pause
}

make_busybox() { # make_busybox ROOT
  local applet
  mkdir -p "$1"/{bin,etc,tmp,proc,sys,dev}
  chmod 1777 "$1/tmp"
  cp "$busybox" "$1/bin/busybox"
  for applet in $("$busybox" --list); do
    [ -e "$1/bin/$applet" ] || ln -s busybox "$1/bin/$applet"
  done
  rm "$1/bin/wget"  # this static one crashes when it looks up a name
  add_program "$1" "$curl"
  echo "hosts: files dns" >"$1/etc/nsswitch.conf"
  "$here/make_image.py" localhost/busybox:1 "$1" "$partial/busybox.tar" /bin/sh
}

add_program() { # add_program ROOT PROGRAM: with the libraries that ldd names
  local file
  cp "$2" "$1/bin"
  ldd "$2" | grep -o '/[^ )]*' | sort -u | while read -r file; do
    mkdir -p "$1$(dirname "$file")"
    cp -L "$file" "$1$file"
  done
}

if [ ! -d "$folder" ]; then
  mkdir -p "$(dirname "$folder")"
  partial=$(mktemp -d "$folder.XXXXXX")
  work=$(mktemp -d)
  trap 'rm -rf "$work" "$partial"' EXIT
  make_pause "$work/pause"
  make_busybox "$work/busybox"
  mv -T "$partial" "$folder" || [ -d "$folder" ]  # another copy may have been faster
fi
echo "$folder"
