#!/bin/sh
# Builds what gpu_check.sh runs, and puts it into a folder: gpu_check_files.sh
# FOLDER.
set -eu

tests="driver_facts_test cuda_collectives_test cuda_ipc_processes_test
  device_runtime_test nccl_collective_test"
benchmarks="gpu_collectives_benchmark gpu_kernels_benchmark gpu_nccl_benchmark"
cmake -B build/core -Wno-deprecated -Wno-dev -DKERAS_RING_BUILD_TESTS=ON \
  -DKERAS_RING_BUILD_BENCHMARKS=ON >/dev/null
# shellcheck disable=SC2086  # words are wanted
cmake --build build/core --target keras_ring $tests $benchmarks
rm -rf "$1"
mkdir -p "$1"
for program in $tests; do cp "build/core/tests/cpp/$program" "$1"; done
for program in $benchmarks; do cp "build/core/benchmarks/$program" "$1"; done
cp build/core/csrc/libkeras_ring.so build/core/csrc/libkeras_ring_internals.so \
  "$1"
strip "$1"/*
cp tests/gpu/torch_program.py tests/gpu/c_interface.py "$1"
du -sh "$1"
