#!/bin/sh
# Builds what gpu_check.sh runs, and puts it into a folder: gpu_check_files.sh
# FOLDER.
set -eu

programs="driver_facts_test cuda_collectives_test cuda_ipc_processes_test gpu_collectives_benchmark
  gpu_kernels_benchmark"
cmake -B build/core -Wno-deprecated -Wno-dev -DKERAS_RING_BUILD_TESTS=ON \
  -DKERAS_RING_BUILD_BENCHMARKS=ON >/dev/null
# shellcheck disable=SC2086  # words are wanted
cmake --build build/core --target $programs
mkdir -p "$1"
cp build/core/csrc/libkeras_ring_internals.so "$1"
for program in $programs; do
  find build/core -name "$program" -type f -exec cp {} "$1" \;
done
strip "$1"/*
du -sh "$1"
