// float16 and bfloat16 as storage: 16 bits, and what float they stand for.
//
// No arithmetic on purpose. Sums of such numbers are taken in float, or the
// small gradients of many ranks would vanish one by one in the rounding.
//
// The conversions compute every case and select, without branches, so that
// they serve the compiler's vectors as well. They never go through a subnormal
// float, so they are right on threads that flush those to zero, too.
//
// Always inlined: csrc/collective/kernels/kernels_avx2.cc and its like are
// compiled for processors that not everyone has. Had they a copy out of line,
// the linker might take it for the whole library.
#ifndef KERAS_RING_BASE_FLOAT16_H_
#define KERAS_RING_BASE_FLOAT16_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace keras_ring {

struct Float16 {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

// `Bits` is uint32_t and `Float` float, or both are vectors of them.
namespace float16_internal {

template <typename To, typename From>
[[gnu::always_inline]] inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// `condition ? a : b` as arithmetic. Of scalars the compiler would turn the
// operator into a branch around a floating-point addition, which must not be
// executed speculatively, and then not vectorise.
template <typename Condition, typename Bits>
[[gnu::always_inline]] inline Bits Select(Condition condition, Bits a, Bits b) {
  if constexpr (std::is_same_v<Condition, bool>) {
    const Bits mask = 0u - static_cast<Bits>(condition);
    return (a & mask) | (b & ~mask);
  } else {
    return condition ? a : b;
  }
}

inline constexpr uint32_t kFloatInfinity = 0x7f800000;
inline constexpr uint32_t kQuietBit = 1 << 22;
// The difference of the exponents' biases of float and float16, in place.
inline constexpr uint32_t kRebias = (127 - 15) << 23;
// 2^-14, the smallest normal float16.
inline constexpr uint32_t kSmallestNormal = (127 - 14) << 23;
// 0.5: its unit in the last place is 2^-24, that of the subnormal float16s.
inline constexpr uint32_t kHalf = 126 << 23;

template <typename Float, typename Bits>
[[gnu::always_inline]] inline Float WidenFloat16(Bits narrow) {
  const Bits sign = (narrow & 0x8000) << 16;
  const Bits magnitude = (narrow & 0x7fff) << 13;
  const Bits normal = magnitude + kRebias;
  // A subnormal's mantissa under the exponent of 2^-14 reads as 2^-14 plus the
  // value.
  const Bits subnormal =
      BitCast<Bits>(BitCast<Float>(magnitude + kSmallestNormal) -
                    BitCast<float>(kSmallestNormal));
  const Bits infinite = magnitude | kFloatInfinity;
  Bits bits = Select(magnitude < (1u << 23), subnormal, normal);
  bits = Select(magnitude >= (31u << 23), infinite, bits);
  bits = Select(magnitude > (31u << 23), infinite | kQuietBit, bits);
  return BitCast<Float>(bits | sign);
}

template <typename Bits, typename Float>
[[gnu::always_inline]] inline Bits NarrowToFloat16(Float value) {
  const Bits bits = BitCast<Bits>(value);
  const Bits sign = (bits >> 16) & 0x8000;
  const Bits magnitude = bits & 0x7fffffff;
  // The carry out of the mantissa into the exponent is what rounding up to the
  // next power of two, or to infinity, means.
  const Bits odd = (magnitude >> 13) & 1;
  const Bits normal = (magnitude - kRebias + 0xfff + odd) >> 13;
  // The addition rounds to the subnormals' unit in the last place.
  const Bits subnormal =
      BitCast<Bits>(BitCast<Float>(magnitude) + BitCast<float>(kHalf)) - kHalf;
  const Bits nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  const Bits infinity = Bits{} + 0x7c00;
  Bits result = Select(magnitude < kSmallestNormal, subnormal, normal);
  result = Select(magnitude >= ((127u + 16) << 23), infinity, result);
  result = Select(magnitude > kFloatInfinity, nan, result);
  return result | sign;
}

template <typename Bits, typename Float>
[[gnu::always_inline]] inline Bits NarrowToBfloat16(Float value) {
  const Bits bits = BitCast<Bits>(value);
  const Bits odd = (bits >> 16) & 1;
  const Bits rounded = bits + 0x7fff + odd;
  return Select(value != value, bits | kQuietBit, rounded) >> 16;
}

}  // namespace float16_internal

// Exact. A NaN keeps its payload and becomes quiet, as the instructions for
// this have it.
[[gnu::always_inline]] inline float ToFloat(Float16 value) {
  return float16_internal::WidenFloat16<float, uint32_t>(value.bits);
}

// Rounds to nearest, ties to even; beyond the largest finite value: infinity.
[[gnu::always_inline]] inline Float16 ToFloat16(float value) {
  return {static_cast<uint16_t>(
      float16_internal::NarrowToFloat16<uint32_t>(value))};
}

// Exact.
[[gnu::always_inline]] inline float ToFloat(Bfloat16 value) {
  return float16_internal::BitCast<float>(static_cast<uint32_t>(value.bits)
                                          << 16);
}

// Rounds to nearest, ties to even; beyond the largest finite value: infinity.
[[gnu::always_inline]] inline Bfloat16 ToBfloat16(float value) {
  return {static_cast<uint16_t>(
      float16_internal::NarrowToBfloat16<uint32_t>(value))};
}

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_FLOAT16_H_
