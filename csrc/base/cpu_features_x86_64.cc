#include "csrc/base/cpu_features.h"

namespace keras_ring {
namespace {

// The compiler's own test also asks whether the system saves the registers.
CpuLevel Detect() {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("f16c")) {
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
