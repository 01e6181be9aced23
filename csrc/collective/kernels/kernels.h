// Kernels over many sources, and the choice of them by processor.
//
// Every kernel of pack.h, reduce.h and this file is compiled once per CpuLevel
// (kernels_inl.h) and gives the same bits at each.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_KERNELS_H_
#define KERAS_RING_COLLECTIVE_KERNELS_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "csrc/base/cpu_features.h"
#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/collective/kernels/pack.h"

namespace keras_ring {

// An allreduce of `count` elements in one go, for code that can read the
// tensors of all ranks.
struct FoldArgs {
  const void* const* sources = nullptr;
  int num_sources = 0;  // at least 1
  int64_t count = 0;
  double prescale = 1.0;
  Finish finish;
  // May equal any one of the sources; otherwise nothing overlaps.
  void* output = nullptr;
  // Gets the same bytes as `output`, if not null.
  void* copy = nullptr;
  // If true, `output` is written past the caches, where the level can: for
  // large outputs that are none of the sources and are not read soon.
  bool streams = false;
};

// output[i] = sources[0][i] op sources[1][i] op ..., in that order. Packed,
// finished and unpacked as pack.h says, so rounded once.
using FoldKernel = void (*)(const FoldArgs& args);

// Returns null unless IsReducible(dtype). `level` is at most DetectCpuLevel().
FoldKernel FindFoldKernel(DType dtype, ReduceOp op,
                          CpuLevel level = DetectCpuLevel());

// The operations of an Adasum on two vectors.
struct PairKernels {
  // Adds a.b, a.a and b.b to `products`. Products are exact for float32, and
  // summed as double in an order that depends on `count` alone.
  void (*multiply)(const void* a, const void* b, int64_t count,
                   double products[3]) = nullptr;
  // a[i] = of_a * a[i] + of_b * b[i], computed as double.
  void (*combine)(void* a, const void* b, int64_t count, double of_a,
                  double of_b) = nullptr;
};

// `dtype`: float32 or float64.
const PairKernels& FindPairKernels(DType dtype,
                                   CpuLevel level = DetectCpuLevel());

// memcpy past the caches where the level can: for large copies that are not
// read soon. Ordered like any other store when it returns.
void StreamCopy(void* to, const void* from, size_t bytes,
                CpuLevel level = DetectCpuLevel());

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_KERNELS_H_
