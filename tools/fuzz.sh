#!/bin/sh
# Runs each fuzz target of build/asan on the corpus for FUZZ_SECONDS (2).
# What was found is in build/fuzz/found; FUZZ_TARGETS narrows it to some.
set -eu

cmake --build build/asan --target fuzzers
mkdir -p build/fuzz/found

names=${FUZZ_TARGETS:-$(cd tests/fuzz && ls ./*_fuzz.cc | sed 's,./,,;s,_fuzz.cc,,')}
failed=""
for name in $names; do
  # What is new of the corpus goes into the first folder.
  mkdir -p "build/fuzz/corpus/$name"
  dictionary="tests/fuzz/$name.dict"
  [ -f "$dictionary" ] || dictionary=""
  log="build/fuzz/$name.log"
  if "build/asan/tests/fuzz/${name}_fuzz" \
      -max_total_time="${FUZZ_SECONDS:-2}" -timeout=5 -rss_limit_mb=512 \
      -max_len=8192 -print_final_stats=1 \
      -artifact_prefix="build/fuzz/found/$name-" \
      ${dictionary:+-dict="$dictionary"} \
      "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    coverage=$(grep -o 'cov: [0-9]*' "$log" | tail -1)
    echo "$name: $runs runs, $coverage"
  else
    tail -60 "$log"
    failed="$failed $name"
  fi
done
[ -z "$failed" ] || { echo "Faults were found in:$failed" >&2; exit 1; }
