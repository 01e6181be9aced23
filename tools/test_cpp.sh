#!/bin/sh
# Builds and runs the C++ tests. Usage: test_cpp.sh FLAVOUR [TEST-REGEX]
#
#   plain  against the core of the package, in build/core, which is there
#   asan   clang, address with undefined; also builds what fuzz.sh runs
#   tsan   clang, thread
#
# KERAS_RING_ALL_TESTS=ON: sanitizers leave nothing out (tests/cpp).
# The builds are kept in build/.
set -eu

flavour=$1
filter=${2:-}
tests="-DKERAS_RING_BUILD_TESTS=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
  -DKERAS_RING_ALL_TESTS=${KERAS_RING_ALL_TESTS:-OFF}"
sanitized="-S . -G Ninja -DCMAKE_C_COMPILER=clang
  -DCMAKE_CXX_COMPILER=clang++"
targets="cpp_tests"
case "$flavour" in
  plain)
    directory=build/core
    set -- -DKERAS_RING_BUILD_BENCHMARKS=ON
    targets="cpp_tests benchmarks"
    ;;
  asan)
    directory=build/asan
    # shellcheck disable=SC2086  # words are wanted
    set -- $sanitized -DSANITIZE=address,undefined
    targets="cpp_tests fuzzers"
    ;;
  tsan)
    directory=build/tsan
    # shellcheck disable=SC2086  # words are wanted
    set -- $sanitized -DSANITIZE=thread
    ;;
  *)
    echo "test_cpp.sh: no flavour '$flavour' (plain, asan, tsan)" >&2
    exit 2
    ;;
esac

echo "== C++ tests, $flavour"
# shellcheck disable=SC2086  # words are wanted
cmake -B "$directory" -Wno-deprecated -Wno-dev $tests "$@" >/dev/null
# shellcheck disable=SC2086  # words are wanted
cmake --build "$directory" --target $targets
ctest --test-dir "$directory" --output-on-failure --no-tests=error \
  -j "$(nproc)" ${filter:+-R "$filter"}
