// DType: the element types that collectives carry.
#ifndef KERAS_RING_BASE_DTYPE_H_
#define KERAS_RING_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "csrc/base/dtype_table.h"

namespace keras_ring {

#define KR_ROW(dtype, name, size, kind, tf, xla) dtype,
enum class DType : uint8_t { KR_FOR_EACH_DTYPE(KR_ROW) };
#undef KR_ROW
#define KR_ROW(dtype, name, size, kind, tf, xla) +1
inline constexpr int kNumDTypes = KR_FOR_EACH_DTYPE(KR_ROW);
#undef KR_ROW

size_t DTypeSize(DType dtype);
// As NumPy and TensorFlow spell it: "float32", "bfloat16".
const char* DTypeName(DType dtype);
bool IsFloating(DType dtype);
bool IsInteger(DType dtype);
// Returns whether sums, extrema and products of the type are defined: bool and
// complex numbers are moved, not reduced.
inline bool IsReducible(DType dtype) {
  return IsFloating(dtype) || IsInteger(dtype);
}
// Returns whether `value` is the number of a DType, for readers of the wire.
inline bool IsDType(uint8_t value) { return value < kNumDTypes; }

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_DTYPE_H_
