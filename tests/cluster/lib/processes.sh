# Programs in the background. A pid alone may be reused; with its start time it names one process for ever.

# start_time PID: in clock ticks since boot; fails for the dead and for zombies
start_time() {
  local stat
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra stat <<<"${stat##*) }"
  [ "${stat[0]}" != Z ] && echo "${stat[19]}"
}

# spawn NAME COMMAND…: runs it detached, output to log/NAME.log, pid and start time to pids/NAME
spawn() {
  local program=$1
  shift
  setsid "$@" >>"$dir/log/$program.log" 2>&1 </dev/null &
  echo "$! $(start_time $!)" >"$dir/pids/$program"
  disown  # or bash would report its death
}

# alive NAME: is what spawn started under that name still running?
alive() {
  local pid started
  read -r pid started 2>/dev/null <"$dir/pids/$1" && [ "$(start_time "$pid")" = "$started" ]
}

pid_of() { cut -d' ' -f1 "$dir/pids/$1"; }

# end NAME: state is thrown away with the cluster, so nothing is asked to end gently (an API server would drain its
# watches for a minute)
end() {
  if alive "$1"; then
    kill -KILL "$(pid_of "$1")"
    wait_until_gone "$1"
  fi
  rm -f "$dir/pids/$1"
}

wait_until_gone() {
  local deadline=$((SECONDS + 20))
  while alive "$1"; do
    ((SECONDS < deadline)) || die "$1 (process $(pid_of "$1")) does not end"
    sleep 0.02
  done
}
