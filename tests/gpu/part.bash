# Parts of tests/gpu/run and node: time limits, logs, the summary and the archive of logs. Expects:
# minutes (empty: no end), full, logs, out (may be empty), summary, scratch, models, program; failed=0.

has() {
  python3 -c "import importlib.util as i, sys; sys.exit(i.find_spec('$1') is None)" 2>/dev/null
}
line() { printf -- '- **%s** %s\n' "$1" "$2" | tee -a "$summary"; }
left_out() { line "$1" "left out: $2"; }
# Seconds that remain, less what it takes to end a part and the run.
remaining() { [ -n "$minutes" ] && echo $((60 * minutes - 10 - SECONDS)) || echo 1000000; }
# background NAME COMMAND …: until the run ends. The name of a process is a name of a variable too.
background() {
  timeout --kill-after=5 7200 "${@:2}" >"$logs/$1.log" 2>&1 </dev/null &
  declare -g "$1_process=$!"
  processes+=("$!")
}
# What is brought back from a machine that gives few files: all logs as one.
archive() {
  [ -n "$out" ] || return 0
  tar -C "$logs" -czf "$scratch/logs.tar.gz" . &&
    cp "$scratch/logs.tar.gz" "$out/logs.tar.gz.new" &&
    mv "$out/logs.tar.gz.new" "$out/logs.tar.gz"
}
# The lines of a log that say most.
said() {
  local lines most='^\[  (PASSED|FAILED|SKIPPED) +\] [0-9]+ test|^(OK|FAILED|Ran )|^left out'
  lines=$(grep -aE "$most|ERROR SUMMARY|OTHER BITS" "$1" | sort -u | head -n 4)
  [ -n "$lines" ] || [ "$2" = 0 ] || lines=$(grep -a . "$1" | tail -n 2 | cut -c 1-300)
  [ -z "$lines" ] || tr '\n' ';' <<<"$lines"
}
# part NAME SHORT LONG COMMAND …: runs it, its words in NAME.log. SHORT: its limit in seconds in a
# run of `full` minutes; LONG: without --minutes. Lines that match $show also go to the summary, as
# they come. With fused=1 it is a failure if the transformer's attention was not cuDNN's. Status 77
# is for what had to be left out.
part() {
  local name=$1 limit=$3 start=$SECONDS begin=$EPOCHREALTIME status what log=$logs/$1.log shown
  [ -z "$minutes" ] || limit=$(($2 * minutes / full < $3 ? $2 * minutes / full : $3))
  shift 3
  if [ "$(remaining)" -lt $((limit / 3)) ]; then
    left_out "$name" "$(remaining) s remain, its limit is $limit s"
    return 77
  fi
  [ "$(remaining)" -ge "$limit" ] || limit=$(remaining)
  : >"$log"
  timeout --kill-after=5 "$limit" "$@" >>"$log" 2>&1 </dev/null &
  child=$!
  if [ -n "${show:-}" ]; then
    printf '\n### %s\n\n' "$name" | tee -a "$summary"
    tail --lines=+1 --sleep-interval=0.05 --pid=$child -f "$log" |
      grep -aE --line-buffered -e "$show" | tee -a "$summary" &
    shown=$!
  fi
  wait $child
  status=$?
  child=''
  if [ -n "${show:-}" ]; then
    wait $shown
    echo | tee -a "$summary"
  fi
  # Tests that skip for want of a GPU do not show what this is here to show, nor do no tests.
  ! grep -q 'there is no CUDA device' "$log" || status=69
  ! grep -q '^\[==========\] 0 tests from' "$log" || status=70
  case $status in
    0) what=passed ;;
    77) what="left out" ;;
    124 | 137) what="FAILED: over $limit s" failed=1 ;;
    *) what="FAILED: status $status" failed=1 ;;
  esac
  if [ -n "${fused:-}" ] && grep -qE "(^|[:;] )attention: own kernels" "$log"; then
    what="FAILED: attention was not cuDNN's ($what)" failed=1
  fi
  line "$name" "$what, $((SECONDS - start)) s. $(said "$log" "$status")$(python3 -B \
    tests/gpu/monitor.py "$logs/gpu.csv" "$begin" "$EPOCHREALTIME" 2>/dev/null)"
  archive
  return "$status"
}
# suites SHORT LONG PROGRAM [FILTER]: each suite in a process of its own, so that an illegal address
# in one does not fail the others.
suites() {
  local suite all
  all=$(timeout 60 "$3" --gtest_list_tests | sed -nE 's/^([^ ]+)\.( .*)?$/\1/p')
  if [ -z "$all" ]; then
    failed=1
    line "${3##*/}" "FAILED: it lists no tests"
  fi
  for suite in $all; do
    part "${3##*/}_${suite//\//_}" "$1" "$2" "$3" --gtest_filter="$suite.*"
  done
}
# Makes the models NAME PRESET OPTIONS, one line each on standard input, that are not there yet.
make_models() {
  local name preset cuts
  while read -r name preset cuts; do
    [ ! -f "$models/$name/model_index.json" ] || continue
    rm -rf "${models:?}/$name"
    # shellcheck disable=SC2086 # $cuts are words
    "$program" make-model "$preset" "$models/$name" --no-sync $cuts || echo "$name: status $?"
  done
}
# Waits for a model that is being made; says so where it is not made.
model() {
  while [ ! -f "$models/$1/model_index.json" ]; do
    if ! kill -0 "$making_models_process" 2>/dev/null || [ "$(remaining)" -lt 10 ]; then
      [ -f "$models/$1/model_index.json" ] && return
      failed=1
      line "$2" "FAILED: there is no model $1: $(tail -n 1 "$logs/making_models.log")"
      return 1
    fi
    sleep 0.2
  done
}
