#!/bin/sh
# Runs nvcc with the arguments given, and keeps ptxas's report of registers, stack and spills
# (-Xptxas -v) beside the object: OBJECT.ptxas. tests/ops/cuda/spills_test.py reads it.
object=
previous=
for argument; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
if [ -z "$object" ]; then exec "$@"; fi
"$@" 2>"$object.messages"
status=$?
report='^ptxas info|^ +[0-9]+ bytes stack frame'
grep -E "$report" "$object.messages" >"$object.ptxas"
grep -Ev "$report" "$object.messages" >&2
rm -f "$object.messages"
exit $status
