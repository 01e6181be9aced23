#!/bin/sh
# Makes the seeds of tests/fuzz/corpus again.
set -eu

cmake -S . -B build/cpp -G Ninja -Wno-deprecated -Wno-dev \
  -DKERAS_RING_BUILD_PACKAGE=OFF -DKERAS_RING_BUILD_TESTS=ON \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O2 -g1" -DSANITIZE= >/dev/null
cmake --build build/cpp --target make_corpus
build/cpp/tests/fuzz/make_corpus tests/fuzz/corpus
