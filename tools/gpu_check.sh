#!/bin/sh
# Checks what serves devices on a real one, and prints a table for docs/gpu.md:
#
#   gpu_check.sh FILES [OUT]
#
# FILES: what `make gpu-check-files` has put together, which needs no compiler
# and no package of Python to run. OUT: a folder for the logs of the parts.
#
# Each part has a limit in seconds; all together take less than 500. With
# KERAS_RING_TEST_DRIVER=fake, the same on a machine without a device.
set -u

files=$(cd "$1" && pwd)
out=${2:-$(mktemp -d)}
mkdir -p "$out"
export KERAS_RING_TEST_DRIVER="${KERAS_RING_TEST_DRIVER:-real}"
export LD_LIBRARY_PATH="$files${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
largest=1073741824
if [ "$KERAS_RING_TEST_DRIVER" != real ]; then largest=1000000; fi
results=""

# part NAME LIMIT COMMAND...
part() {
  name=$1
  limit=$2
  shift 2
  began=$(date +%s)
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
  code=$?
  took=$(($(date +%s) - began))
  case $code in
    0) word=passed ;;
    124 | 137) word="NOT DONE in $limit s" ;;
    *) word="FAILED ($code)" ;;
  esac
  results="$results$(printf '%-28s %4d s  %s' "$name" "$took" "$word")
"
  if [ "$code" != 0 ]; then tail -n 15 "$out/$name.log"; fi
}

if [ "$KERAS_RING_TEST_DRIVER" = real ]; then
  nvidia-smi --query-gpu=name,driver_version,memory.total \
    --format=csv,noheader || true
fi

part driver-facts 90 "$files/driver_facts_test"
grep "^after the kill\|^a copy from" "$out/driver-facts.log"
part conformance 150 "$files/cuda_collectives_test" --gtest_brief=1
tail -n 3 "$out/conformance.log"
for kind in threads processes; do
  part "allreduce-of-$kind" 100 "$files/gpu_collectives_benchmark" \
    "--$kind" "--largest=$largest"
  cat "$out/allreduce-of-$kind.log"
done
if [ "$KERAS_RING_TEST_DRIVER" = real ] && command -v compute-sanitizer \
  >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    part "sanitizer-$tool" 60 compute-sanitizer --tool "$tool" \
      --error-exitcode 9 "$files/cuda_collectives_test" --gtest_brief=1 \
      --gtest_filter='*AllreduceOfManyTensors/usual_2:*Broadcast*/direct_3'
    tail -n 2 "$out/sanitizer-$tool.log"
  done
fi

printf '\n%s' "$results"
case $results in
  *FAILED* | *NOT*) exit 1 ;;
esac
