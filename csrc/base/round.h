// Division and rounding upwards, of counts and sizes: none is negative.
#ifndef KERAS_RING_BASE_ROUND_H_
#define KERAS_RING_BASE_ROUND_H_

#include <type_traits>

namespace keras_ring {

// The first argument alone chooses the type.
template <typename T>
constexpr T DivideUp(T value, std::common_type_t<T> by) {
  return (value + by - 1) / by;
}

// Rounds up to a multiple of `to`.
template <typename T>
constexpr T RoundUp(T value, std::common_type_t<T> to) {
  return DivideUp(value, to) * to;
}

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_ROUND_H_
