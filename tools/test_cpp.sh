#!/bin/sh
# Builds and runs the C++ tests:
#
#   test_cpp.sh FLAVOUR [REGEX [LEFT]]
#
# those whose names match REGEX (all, if it is empty) and not LEFT. Of tests, no
# others are built.
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
left=${3:-}
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
set -- ${filter:+-R "$filter"} ${left:+-E "$left"}
lists=$(mktemp -d)
trap 'rm -rf "$lists"' EXIT
# A long test runs in parts, NAME_1_of_4.
ctest --test-dir "$directory" -N "$@" |
  sed -n 's/^ *Test *#[0-9]*: //p' | sed 's/_[0-9]*_of_[0-9]*$//' |
  sort -u >"$lists/chosen"
ninja -C "$directory" -t targets all | sed -n 's/: .*//p' |
  sort -u >"$lists/known"
unknown=$(comm -23 "$lists/chosen" "$lists/known")
if [ -n "$unknown" ]; then
  echo "test_cpp.sh: no target has the name of these tests:" $unknown >&2
  exit 1
fi
if [ -n "$filter" ]; then
  targets=$(cat "$lists/chosen")
elif [ -n "$left" ]; then
  targets="${targets#cpp_tests} $(cat "$lists/chosen")"
fi
# shellcheck disable=SC2086  # words are wanted
cmake --build "$directory" --target $targets
ctest --test-dir "$directory" --output-on-failure --no-tests=error \
  --output-junit tests.xml -j "$(nproc)" "$@"
