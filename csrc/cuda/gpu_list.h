// The GPUs of this process, described without use of them.
#ifndef KERAS_RING_CUDA_GPU_LIST_H_
#define KERAS_RING_CUDA_GPU_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/cuda/driver.h"

namespace keras_ring::cuda {

struct GpuFacts {
  int ordinal = 0;
  std::string name;
  std::string uuid;  // as nvidia-smi shows it, "GPU-..."
  std::string bus;   // of PCI
  uint64_t bytes = 0;
  int major = 0;  // of its compute capability
  int minor = 0;
};

// In the order of the driver, which TensorFlow's is.
Result<std::vector<GpuFacts>> ListGpus(const Driver& driver);

// "GPU-01020304-0506-...".
std::string UuidText(const Uuid& uuid);

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_GPU_LIST_H_
