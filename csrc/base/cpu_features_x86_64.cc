#include <cpuid.h>

#include "csrc/base/cpu_features.h"

namespace keras_ring {
namespace {

// clang's test does not know it.
bool HasF16c() {
  unsigned int a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// The compiler's own test also asks whether the system saves the registers,
// which are the same for AVX2 and F16C.
CpuLevel Detect() {
  if (!__builtin_cpu_supports("avx2") || !HasF16c()) {
    return CpuLevel::kBaseline;
  }
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return CpuLevel::kAvx2;
  }
  return CpuLevel::kAvx512;
}

}  // namespace

CpuLevel DetectCpuLevel() {
  static const CpuLevel level = Detect();
  return level;
}

void RelaxCpu() { __builtin_ia32_pause(); }

}  // namespace keras_ring
