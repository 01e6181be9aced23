// TEMPORARY until the kernels branch
#ifndef KERAS_RING_COLLECTIVE_KERNELS_H_
#define KERAS_RING_COLLECTIVE_KERNELS_H_
#include <cstdint>

#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/collective/pack.h"
namespace keras_ring {
struct FoldArgs {
  const void* const* sources;
  int num_sources;
  int64_t count;
  double prescale;
  Finish finish;
  void* output;
  void* copy;
};
using FoldKernel = void (*)(const FoldArgs&);
FoldKernel FindFoldKernel(DType dtype, ReduceOp op);
}  // namespace keras_ring
#endif
