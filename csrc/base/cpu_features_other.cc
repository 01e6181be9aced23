// For processors that are not x86-64.
#include "csrc/base/cpu_features.h"

namespace keras_ring {

CpuLevel DetectCpuLevel() { return CpuLevel::kBaseline; }

void RelaxCpu() {}

}  // namespace keras_ring
