# Words that every script here uses: telling, failing, measuring, waiting.

cache=${LOCKSTEP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/lockstep}

say() { printf '%s\n' "$*" >&2; }

die() {
  say "cluster: $*"
  exit 1
}

# elapsed START: seconds since $EPOCHREALTIME was START, with one decimal
elapsed() {
  local tenths=$(((${EPOCHREALTIME//[!0-9]/} - ${1//[!0-9]/}) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

# wait_for SECONDS WHAT PROGRAM COMMAND…: until COMMAND succeeds. Gives up when the time is over or PROGRAM (as named to
# spawn; '' for none) has ended, and shows the end of PROGRAM's log.
wait_for() {
  local limit=$1 what=$2 program=$3 start=$EPOCHREALTIME deadline=$((SECONDS + $1))
  shift 3
  until "$@" >/dev/null 2>&1; do
    if [ -n "$program" ] && ! alive "$program"; then
      give_up "$program ended while waiting for: $what" "$program"
      return 1
    elif ((SECONDS >= deadline)); then
      give_up "waited $limit s in vain for: $what" "$program"
      return 1
    fi
    sleep 0.1
  done
  say "cluster: $what: $(elapsed "$start") s"
}

give_up() {
  say "cluster: $1"
  [ ! -s "$dir/log/$2.log" ] || tail -n 20 "$dir/log/$2.log" >&2
}

# render FILE: its text with each ${variable} replaced from the environment; an unknown one is an error
render() {
  python3 -c 'import os, string, sys; print(string.Template(open(sys.argv[1]).read()).substitute(os.environ), end="")' "$1"
}
