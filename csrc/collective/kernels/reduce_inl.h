// The operations of reduce.h on vectors. See kernels_inl.h.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_REDUCE_INL_H_
#define KERAS_RING_COLLECTIVE_KERNELS_REDUCE_INL_H_

#include <type_traits>

#include "csrc/collective/kernels/lanes_inl.h"

namespace keras_ring {
namespace {

// Integers are added and multiplied as unsigned ones: signed overflow is
// undefined.
template <typename T, typename V, typename Function>
[[gnu::always_inline]] inline V AsUnsigned(V a, V b, Function f) {
  if constexpr (std::is_integral_v<T>) {
    using U = Vector<std::make_unsigned_t<T>, sizeof(V) / sizeof(T)>;
    return reinterpret_cast<V>(
        f(reinterpret_cast<U>(a), reinterpret_cast<U>(b)));
  } else {
    return f(a, b);
  }
}

// Returns b, but a where a is a NaN. Given two NaNs, processors return the
// first, and compilers may swap the operands of + and *; a + a is the same
// either way.
template <typename T, typename V>
[[gnu::always_inline]] inline V UnlessNan(V a, V b) {
  if constexpr (std::is_integral_v<T>) {
    return b;
  } else {
    return a != a ? a : b;
  }
}

// Apply<T>(a, b): of vectors `V` of T.

struct Sum {
  template <typename T, typename V>
  [[gnu::always_inline]] static V Apply(V a, V b) {
    return AsUnsigned<T>(a, UnlessNan<T>(a, b),
                         [](auto x, auto y) { return x + y; });
  }
};

struct Product {
  template <typename T, typename V>
  [[gnu::always_inline]] static V Apply(V a, V b) {
    return AsUnsigned<T>(a, UnlessNan<T>(a, b),
                         [](auto x, auto y) { return x * y; });
  }
};

// `a != a` is true for a NaN only. A NaN in b is taken because it compares
// false.
struct Min {
  template <typename T, typename V>
  [[gnu::always_inline]] static V Apply(V a, V b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

struct Max {
  template <typename T, typename V>
  [[gnu::always_inline]] static V Apply(V a, V b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};

}  // namespace
}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_REDUCE_INL_H_
