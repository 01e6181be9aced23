// Vectors of the compiler, their loads and stores. See kernels_inl.h.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_LANES_INL_H_
#define KERAS_RING_COLLECTIVE_KERNELS_LANES_INL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "csrc/base/float16.h"

namespace keras_ring {
namespace {

// Bytes of a cache line.
inline constexpr size_t kLine = 64;

template <typename T, int kLanes>
struct VectorOf {
  using Type [[gnu::vector_size(kLanes * sizeof(T))]] = T;
};
template <typename T, int kLanes>
using Vector = typename VectorOf<T, kLanes>::Type;

template <typename T>
inline constexpr bool kIs16BitFloat =
    std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

// The number of T in a vector of the instruction set.
template <typename Isa, typename T>
inline constexpr int kLanesOf = Isa::kVectorBytes / sizeof(T);

template <typename V, typename T>
[[gnu::always_inline]] inline V LoadAs(const T* from) {
  V vector;
  std::memcpy(&vector, from, sizeof(vector));
  return vector;
}

// The next lanes of `from`, converted.
template <typename Isa, typename Wide, typename From>
[[gnu::always_inline]] inline Vector<Wide, kLanesOf<Isa, Wide>> Load(
    const From* from) {
  constexpr int kLanes = kLanesOf<Isa, Wide>;
  using Wides = Vector<Wide, kLanes>;
  if constexpr (std::is_same_v<From, Wide>) {
    return LoadAs<Wides>(from);
  } else if constexpr (kIs16BitFloat<From>) {
    return Isa::Widen(from);
  } else {
    return __builtin_convertvector(LoadAs<Vector<From, kLanes>>(from), Wides);
  }
}

// Converts `values` to floats that any narrower format rounds as it would round
// the values themselves: rounded towards zero, with the last bit set if
// anything was lost, so that no new tie appears.
template <int kLanes>
[[gnu::always_inline]] inline Vector<float, kLanes> RoundToOdd(
    Vector<double, kLanes> values) {
  using Floats = Vector<float, kLanes>;
  using Bits = Vector<uint32_t, kLanes>;
  const Floats nearest = __builtin_convertvector(values, Floats);
  const auto back = __builtin_convertvector(nearest, Vector<double, kLanes>);
  const auto above = back > values;
  const auto below = back < values;
  const auto too_large = (above & (values > 0)) | (below & (values < 0));
  Bits bits = reinterpret_cast<Bits>(nearest);
  bits += __builtin_convertvector(too_large, Bits);  // -1 where it is true
  bits |= __builtin_convertvector(above | below, Bits) & 1;
  return reinterpret_cast<Floats>(bits);
}

template <typename To, typename Floats>
[[gnu::always_inline]] inline void NarrowAnywhere(To* to, Floats floats) {
  constexpr int kLanes = sizeof(Floats) / sizeof(float);
  using Bits = Vector<uint32_t, kLanes>;
  Bits bits;
  if constexpr (std::is_same_v<To, Float16>) {
    bits = float16_internal::NarrowToFloat16<Bits>(floats);
  } else {
    bits = float16_internal::NarrowToBfloat16<Bits>(floats);
  }
  const auto narrow = __builtin_convertvector(bits, Vector<uint16_t, kLanes>);
  std::memcpy(to, &narrow, sizeof(narrow));
}

template <typename Isa, typename Wide, typename To>
[[gnu::always_inline]] inline void Store(
    To* to, Vector<Wide, kLanesOf<Isa, Wide>> lanes) {
  constexpr int kLanes = kLanesOf<Isa, Wide>;
  if constexpr (std::is_same_v<To, Wide>) {
    std::memcpy(to, &lanes, sizeof(lanes));
  } else if constexpr (kIs16BitFloat<To> && std::is_same_v<Wide, double>) {
    NarrowAnywhere(to, RoundToOdd<kLanes>(lanes));
  } else if constexpr (kIs16BitFloat<To>) {
    Isa::Narrow(to, lanes);
  } else {
    const auto narrow = __builtin_convertvector(lanes, Vector<To, kLanes>);
    std::memcpy(to, &narrow, sizeof(narrow));
  }
}

}  // namespace
}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_LANES_INL_H_
