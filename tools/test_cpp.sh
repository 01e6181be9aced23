#!/bin/sh
# Builds and runs the C++ tests under ASAN and UBSAN, and under TSAN. SANITIZERS
# names others; "none" is without. The builds are kept in build/. Lines are what
# a stack needs of debug information; all of it takes a third of the compiler's
# time.
set -eu

for sanitize in ${SANITIZERS:-address,undefined thread}; do
  [ "$sanitize" != none ] || sanitize=""
  directory="build/cpp${sanitize:+-$(echo "$sanitize" | tr , -)}"
  echo "== C++ tests ${sanitize:+under $sanitize}"
  cmake -S . -B "$directory" -G Ninja -Wno-deprecated -Wno-dev \
    -DKERAS_RING_BUILD_PACKAGE=OFF -DKERAS_RING_BUILD_TESTS=ON \
    -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O2 -g1" \
    -DSANITIZE="$sanitize" >/dev/null
  cmake --build "$directory"
  ctest --test-dir "$directory" --output-on-failure -j "$(nproc)"
done
