// DType: the element types that collectives carry. One table, in dtype.cc.
#ifndef KERAS_RING_BASE_DTYPE_H_
#define KERAS_RING_BASE_DTYPE_H_

#include <cstddef>
#include <cstdint>

namespace keras_ring {

// The values travel on the wire: append, never renumber.
enum class DType : uint8_t {
  kUint8 = 0,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kBool,
  kComplex64,
  kComplex128,
};
inline constexpr int kNumDTypes = 13;

size_t DTypeSize(DType dtype);
// As NumPy and TensorFlow spell it: "float32", "bfloat16".
const char* DTypeName(DType dtype);
bool IsFloating(DType dtype);
bool IsInteger(DType dtype);
// Whether sums, extrema and products of it are defined: bool and complex
// numbers are moved, not reduced.
inline bool IsReducible(DType dtype) {
  return IsFloating(dtype) || IsInteger(dtype);
}
// Whether `value` is the number of a DType, for readers of the wire.
inline bool IsDType(uint8_t value) { return value < kNumDTypes; }

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_DTYPE_H_
