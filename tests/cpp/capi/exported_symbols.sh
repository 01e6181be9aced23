#!/bin/sh
# Usage: exported_symbols.sh HEADER LIBRARY
# The library exports the functions of its C header, all of them and no others.
set -eu

declared=$(sed -n 's/^[A-Za-z].*[ *]\(Kr[A-Za-z]*\)(.*/\1/p' "$1" | sort)
exported=$(nm -D --defined-only --format=posix "$2" | cut -d' ' -f1 | sort)
[ -n "$declared" ] || { echo "no function in $1"; exit 1; }
if [ "$declared" != "$exported" ]; then
  echo "declared:" "$declared"
  echo "exported:" "$exported"
  exit 1
fi
