// KernelTable: all kernels of one CpuLevel.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_KERNEL_TABLE_H_
#define KERAS_RING_COLLECTIVE_KERNELS_KERNEL_TABLE_H_

#include <cstddef>

#include "csrc/base/cpu_features.h"
#include "csrc/collective/kernels/codec.h"
#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/kernels/pack.h"
#include "csrc/collective/kernels/reduce.h"

namespace keras_ring {

struct KernelTable {
  // Null if the dtype has no such kernel.
  struct Row {
    AccumulatorFormat usual;
    AccumulatorFormat average;
    ReduceKernel reduce[kNumElementwiseOps] = {};
    FoldKernel fold[kNumElementwiseOps] = {};
    PairKernels pair;
  };
  Row rows[kNumDTypes];
  // By the dtype of the wire, then by that of the tensors: float16 and
  // bfloat16; float32 and float64.
  Codec codecs[2][2];
  void (*stream_copy)(void* to, const void* from, size_t bytes) = nullptr;
};

// Defined in kernels_*.cc. Null if the architecture has no such level.
extern const KernelTable* const kBaselineKernels;
extern const KernelTable* const kAvx2Kernels;
extern const KernelTable* const kAvx512Kernels;

const KernelTable& KernelsOf(CpuLevel level);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_KERNEL_TABLE_H_
