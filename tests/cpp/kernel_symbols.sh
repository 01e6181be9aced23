#!/bin/sh
# Usage: kernel_symbols.sh OBJECT-OR-ARCHIVE...
# The kernels that only some processors can run hold no code that the linker
# may give to others: csrc/collective/kernels/kernels_inl.h says why.
set -eu

found=no
status=0
for object; do
  case "$object" in
    *kernels_baseline.*) found=yes ;;
    *kernels_avx*)
      symbols=$(nm -C --extern-only --defined-only "$object")
      if echo "$symbols" | grep ' [TWi] '; then
        echo "is visible in $object"
        status=1
      fi
      ;;
  esac
done
[ $found = yes ] || { echo "no kernels among the objects"; exit 1; }
exit $status
