// CpuLevel: which of the vector kernels this processor can run.
#ifndef KERAS_RING_BASE_CPU_FEATURES_H_
#define KERAS_RING_BASE_CPU_FEATURES_H_

namespace keras_ring {

// Each includes those before it.
enum class CpuLevel {
  kBaseline = 0,  // what every processor of the architecture has
  kAvx2,          // AVX2, F16C
  kAvx512,        // AVX-512 F, BW, DQ, VL
};
inline constexpr int kNumCpuLevels = 3;

// The highest that the processor has and the system supports. Found once.
CpuLevel DetectCpuLevel();

// "baseline", "avx2", "avx512".
const char* CpuLevelName(CpuLevel level);

// One step of a busy wait: tells the core that nothing is to be gained by
// hurrying.
void RelaxCpu();

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_CPU_FEATURES_H_
