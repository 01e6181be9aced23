#!/bin/sh
# Compiles the core into build/core, where setup.py goes on from it.
set -eu

# shellcheck disable=SC2086  # words are wanted
cmake -S . -B build/core -G Ninja -DCMAKE_MAKE_PROGRAM="$(command -v ninja)" \
  ${CMAKE_ARGS:-}
cmake --build build/core
