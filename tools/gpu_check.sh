#!/bin/sh
# Checks what serves devices on a real one, and prints a table for docs/gpu.md:
#
#   gpu_check.sh FILES [OUT]
#
# FILES: what `make gpu-check-files` has put together, which needs no compiler.
# OUT: a folder for the logs of the parts. What needs PyTorch is left out where
# python3 has none, and what needs compute-sanitizer likewise.
#
# Each part has a limit; all together take less than 500 seconds. With
# KERAS_RING_TEST_DRIVER=fake, the same on a machine without a device.
set -u

files=$(cd "$1" && pwd)
out=${2:-$(mktemp -d)}
mkdir -p "$out"
export KERAS_RING_TEST_DRIVER="${KERAS_RING_TEST_DRIVER:-real}"
export LD_LIBRARY_PATH="$files${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
largest=1073741824
collectives="*"
if [ "$KERAS_RING_TEST_DRIVER" != real ]; then
  largest=1000000
  collectives="*usual_2*"
fi
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
  results="$results$(printf '%-26s %4d s  %s' "$name" "$took" "$word")
"
  if [ "$code" != 0 ]; then tail -n 15 "$out/$name.log"; fi
}

if [ "$KERAS_RING_TEST_DRIVER" = real ]; then
  nvidia-smi --query-gpu=name,driver_version,memory.total \
    --format=csv,noheader || true
fi

part driver-facts 60 "$files/driver_facts_test"
grep "^after the kill\|^a copy from\|^the process" "$out/driver-facts.log"
part processes 60 "$files/cuda_ipc_processes_test"
part runtime 60 "$files/device_runtime_test"
part kernels 60 "$files/gpu_kernels_benchmark"
cat "$out/kernels.log"
for kind in threads processes; do
  part "allreduce-of-$kind" 60 "$files/gpu_collectives_benchmark" \
    "--$kind" "--largest=$largest"
  cat "$out/allreduce-of-$kind.log"
done
if [ "$KERAS_RING_TEST_DRIVER" = real ] &&
  python3 -c "import torch" 2>/dev/null; then
  for allocator in native expandable_segments:True backend:cudaMallocAsync; do
    ranks="1 2 4"
    setting=$allocator
    if [ "$allocator" = native ]; then setting=""; else ranks=2; fi
    # shellcheck disable=SC2086  # words are wanted
    part "torch-${allocator%%:*}" 90 env PYTORCH_CUDA_ALLOC_CONF="$setting" \
      python3 "$files/torch_program.py" "$files/libkeras_ring.so" \
      --ranks $ranks
    cat "$out/torch-${allocator%%:*}.log"
  done
fi
if [ "$KERAS_RING_TEST_DRIVER" = real ] &&
  command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck initcheck; do
    part "sanitizer-$tool" 40 compute-sanitizer --tool "$tool" \
      --error-exitcode 9 "$files/cuda_collectives_test" --gtest_brief=1 \
      --gtest_filter='*AllreduceOfManyTensors/*_2:*Broadcast*/direct_3'
    tail -n 1 "$out/sanitizer-$tool.log"
  done
fi
nccl=$(python3 -c "import nvidia.nccl as n; print(list(n.__path__)[0])" \
  2>/dev/null) || nccl=""
if [ "$KERAS_RING_TEST_DRIVER" != real ] || [ -n "$nccl" ]; then
  part nccl 60 env "LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nccl/lib" \
    "$files/nccl_collective_test" --gtest_brief=1 \
    "--gtest_filter=*usual_1:*usual_2:NcclTest*"
  part nccl-one-rank 60 env "LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$nccl/lib" \
    "$files/gpu_nccl_benchmark"
  cat "$out/nccl-one-rank.log"
fi
# The longest last: if it is stopped, the others have been run.
part conformance 240 "$files/cuda_collectives_test" --gtest_brief=1 \
  "--gtest_filter=$collectives"
tail -n 3 "$out/conformance.log"

printf '\n%s' "$results"
case $results in
  *FAILED* | *NOT*) exit 1 ;;
esac
