// KernelSet: the kernels of kernels.cu, loaded for one device.
#ifndef KERAS_RING_CUDA_KERNELS_KERNEL_SET_H_
#define KERAS_RING_CUDA_KERNELS_KERNEL_SET_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/compression.h"
#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/base/status.h"
#include "csrc/cuda/driver.h"
#include "csrc/cuda/gpu.h"
#include "csrc/cuda/kernels/arguments.h"

namespace keras_ring::cuda {

// The text that the driver compiles for its device.
const std::string& KernelsPtx();

// Returns the name of the kernel that reduces tensors of `dtype` as values of
// `wire`; "" if there is none, as for complex numbers and an Adasum.
std::string FoldKernelName(DType dtype, DType wire, ReduceOp op);
// Returns a kFold number.
int FoldOpOf(ReduceOp op);

// The tiles of an array, and whether vectors can be used on it.
inline long long TilesOf(long long bytes) {
  return (bytes + kTileBytes - 1) / kTileBytes;
}
inline bool IsAligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % kVectorBytes == 0;
}

// For one thread.
class KernelSet {
 public:
  // Compiles them, which takes seconds, unless the driver finds them in its
  // cache.
  static Result<std::unique_ptr<KernelSet>> Load(
      std::shared_ptr<Gpu> gpu, const std::string& ptx = KernelsPtx());
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;

  // Both give the kernel to `stream` and return. The device must be current,
  // and rows, if any, must be in its memory.
  Status Fold(const std::string& kernel, const FoldArguments& args,
              Stream stream);
  Status Copy(const CopyArguments& args, Stream stream);

 private:
  KernelSet(std::shared_ptr<Gpu> gpu, Module module)
      : gpu_(std::move(gpu)), module_(module) {}
  Status Launch(const std::string& kernel, const void* args, long long tiles,
                Stream stream);

  const std::shared_ptr<Gpu> gpu_;
  const Module module_;
  std::map<std::string, Function> functions_;  // as far as they were used
};

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_KERNELS_KERNEL_SET_H_
