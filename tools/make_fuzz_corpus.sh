#!/bin/sh
# Makes the seeds of tests/fuzz/corpus again.
set -eu

cmake -B build/core -DKERAS_RING_BUILD_TESTS=ON >/dev/null
cmake --build build/core --target make_corpus
build/core/tests/fuzz/make_corpus tests/fuzz/corpus
