// Pack: from the tensors of a bucket to numbers that can be reduced, and back.
//
// Values of one dtype are summed in its *wide dtype*:
//
//   dtype               op         wide dtype  because
//   float16, bfloat16   all        float32     summed in float32 and rounded
//                                              once, at the end
//   integers            Average    int64       the sum must be exact before it
//                                              is divided
//   all others          all        the same
//
// Packing multiplies by `prescale` on the way, in the wide dtype. After the
// reduction the *finish* divides and multiplies by `postscale`, still in the
// wide dtype; unpacking then only converts.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_PACK_H_
#define KERAS_RING_COLLECTIVE_KERNELS_PACK_H_

#include <cstddef>
#include <cstdint>

#include "csrc/base/cpu_features.h"
#include "csrc/base/dtype.h"
#include "csrc/base/reduce_op.h"

namespace keras_ring {

// The last step, which turns a sum into the result.
struct Finish {
  int64_t divisor = 1;
  double postscale = 1.0;
  bool identity() const { return divisor == 1 && postscale == 1.0; }
};

struct AccumulatorFormat {
  DType dtype = DType::kFloat32;
  size_t element_size = 0;
  size_t value_size = 0;  // of an element as it lies in the tensors
  // True if the wide dtype differs from that of the tensors.
  bool converts = false;
  // Bytes of an element and, if it converts, of its value beside it.
  size_t packed_size() const {
    return element_size + (converts ? value_size : 0);
  }

  // wide[i] = values[i] * prescale. The arrays are equal (if nothing converts)
  // or do not overlap.
  void (*pack)(void* wide, const void* values, int64_t count,
               double prescale) = nullptr;
  // values[i] = wide[i], rounded to nearest even. Arrays as for pack.
  void (*unpack)(void* values, const void* wide, int64_t count) = nullptr;
  // wide[i] = wide[i] / divisor * postscale. Integers use only the divisor, and
  // round down.
  void (*finish)(void* wide, int64_t count, const Finish& finish) = nullptr;
};

// Returns null unless IsReducible(dtype). `level` is at most DetectCpuLevel().
const AccumulatorFormat* FindWideFormat(DType dtype, ReduceOp op,
                                        CpuLevel level = DetectCpuLevel());

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_PACK_H_
