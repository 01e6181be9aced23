// The rows of one kernel, as a call collects them.
#ifndef KERAS_RING_COLLECTIVE_CUDA_KERNEL_ROWS_H_
#define KERAS_RING_COLLECTIVE_CUDA_KERNEL_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/cuda/call_memory.h"
#include "csrc/cuda/kernels/kernel_set.h"

namespace keras_ring {

// Copies that one kernel does.
class CopyRows {
 public:
  // Adds nothing where there is nothing to copy.
  void Add(void* to, const void* from, int64_t bytes);
  size_t size() const { return rows_.size(); }
  // Gives them to `stream`; `memory` has room for the rows.
  Status Launch(cuda::KernelSet& kernels, CallMemory& memory,
                cuda::Stream stream) const;

 private:
  std::vector<cuda::CopyRow> rows_;
  long long tiles_ = 0;
};

// Arrays that one kernel reduces.
class FoldRows {
 public:
  // `row`: has its inputs and outputs; null beyond those.
  void Add(cuda::FoldRow row, int64_t count, size_t element);
  // From one array to another: scaled and rounded, as an array is that only one
  // rank has.
  void AddOne(void* output, const void* input, int64_t count, size_t element);
  size_t size() const { return rows_.size(); }
  // Gives them to `stream`; `memory` has room for the rows.
  Status Launch(cuda::KernelSet& kernels, CallMemory& memory,
                cuda::Stream stream, const Reduction& reduction, int num_inputs,
                int num_outputs) const;

 private:
  std::vector<cuda::FoldRow> rows_;
  long long tiles_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_KERNEL_ROWS_H_
