#include "csrc/base/cpu_features.h"

namespace keras_ring {

const char* CpuLevelName(CpuLevel level) {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kNumCpuLevels);
  return kNames[static_cast<int>(level)];
}

}  // namespace keras_ring
