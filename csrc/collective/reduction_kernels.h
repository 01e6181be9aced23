// ReductionKernels: the steps of a reduction, for code that sums packed values.
#ifndef KERAS_RING_COLLECTIVE_REDUCTION_KERNELS_H_
#define KERAS_RING_COLLECTIVE_REDUCTION_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "csrc/collective/arguments.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/kernels/codec.h"
#include "csrc/collective/kernels/pack.h"
#include "csrc/collective/kernels/reduce.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

// Copies a tensor of `bytes` unless it is in place or empty.
inline void CopyIfApart(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

// Returns the address of element `count` of `data`.
template <typename Byte>
Byte* Advance(Byte* data, int64_t count, size_t element_size) {
  using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
  return Advance(static_cast<Char*>(data), count * element_size);
}

// The steps of a reduction: from tensors to *values* (of the wire dtype), from
// these to sums (wide ones if the format converts), and back.
struct ReductionKernels {
  explicit ReductionKernels(const Reduction& reduction)
      : format(*FindWideFormat(reduction.wire_dtype(), reduction.op)),
        codec(FindCodec(reduction.dtype, reduction.wire_dtype())),
        reduce(FindReduceKernel(format.dtype, reduction.op)),
        tensor_size(DTypeSize(reduction.dtype)),
        prescale(reduction.prescale),
        finish(FinishOf(reduction)) {}

  // Applies the prescale as early as possible without an extra rounding.
  void Pack(void* values, const void* tensor, int64_t count) const {
    if (codec != nullptr) {
      codec->pack(values, tensor, count, prescale);
    } else if (format.converts) {
      CopyIfApart(values, tensor, count * format.value_size);
    } else {
      format.pack(values, tensor, count, prescale);
    }
  }
  void Unpack(void* tensor, const void* values, int64_t count) const {
    if (codec != nullptr) {
      codec->unpack(tensor, values, count);
    } else {
      CopyIfApart(tensor, values, count * format.value_size);
    }
  }
  void Widen(void* sums, const void* values, int64_t count) const {
    format.pack(sums, values, count, codec != nullptr ? 1.0 : prescale);
  }
  // If sums are wide, the results go to `values`; else they stay in `sums`.
  void FinishSums(void* sums, void* values, int64_t count) const {
    format.finish(sums, count, finish);
    if (format.converts) format.unpack(values, sums, count);
  }

  const AccumulatorFormat& format;
  const Codec* const codec;   // null if nothing is compressed
  const ReduceKernel reduce;  // null for Adasum
  const size_t tensor_size;
  const double prescale;
  const Finish finish;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_REDUCTION_KERNELS_H_
