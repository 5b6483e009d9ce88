# Each node's containers live below a control group of the node's own. Version 1 has one hierarchy per controller, version 2 a
# single one; the project's machines mount both, the second without controllers.

hierarchies() { findmnt -rno TARGET -t cgroup,cgroup2; }

make_cgroup() { # make_cgroup NAME
  local root file controller
  for root in $(hierarchies); do
    for controller in $(cat "$root/cgroup.controllers" 2>/dev/null); do
      echo "+$controller" >"$root/cgroup.subtree_control"
    done
    mkdir -p "$root/$1"
    for file in cpuset.cpus cpuset.mems; do  # in version 1 a new group has none and refuses processes
      [ ! -s "$root/$file" ] || cat "$root/$file" >"$root/$1/$file"
    done
  done
}

# remove_cgroup NAME: with all below it; the kernel refuses while the last processes are on their way out
remove_cgroup() {
  local root deadline=$((SECONDS + 10))
  for root in $(hierarchies); do
    until [ ! -d "$root/$1" ] || find "$root/$1" -depth -type d -exec rmdir {} + 2>/dev/null; do
      ((SECONDS < deadline)) || die "control group $root/$1 does not go: $(find "$root/$1" -name cgroup.procs -exec cat {} + | tr '\n' ' ')"
      sleep 0.05
    done
  done
}
