// Codec: the kernels of a compressed allreduce, whose values travel in a
// narrower dtype than that of the tensors. See Reduction.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_CODEC_H_
#define KERAS_RING_COLLECTIVE_KERNELS_CODEC_H_

#include <cstddef>
#include <cstdint>

#include "csrc/base/cpu_features.h"
#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"
#include "csrc/collective/kernels/kernels.h"

namespace keras_ring {

// Arrays do not overlap. Rounding is to nearest even; values beyond the largest
// finite number become infinite. A NaN remains one.
struct Codec {
  size_t wire_size = 0;  // of an element

  // wire[i] = values[i] * prescale, rounded once. The product is one of the
  // values' dtype.
  void (*pack)(void* wire, const void* values, int64_t count,
               double prescale) = nullptr;
  // values[i] = wire[i]: exact.
  void (*unpack)(void* values, const void* wire, int64_t count) = nullptr;
  // The fold of the wire dtype. Its rounded results go to `copy` as they are
  // and to `output` unpacked.
  FoldKernel fold[kNumElementwiseOps] = {};
};

// Returns null unless `wire_dtype` is float16 or bfloat16 and `dtype` a wider
// float. `level` is at most DetectCpuLevel().
const Codec* FindCodec(DType dtype, DType wire_dtype,
                       CpuLevel level = DetectCpuLevel());

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_CODEC_H_
