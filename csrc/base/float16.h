// float16 and bfloat16 as storage: 16 bits, and what float they stand for.
//
// No arithmetic on purpose. Sums of such numbers are taken in float, or the
// small gradients of many ranks would vanish one by one in the rounding.
//
// The conversions compute every case and select, without branches, so that
// loops over them vectorise. They never go through a subnormal float, so they
// are right on threads that flush those to zero, too.
#ifndef KERAS_RING_BASE_FLOAT16_H_
#define KERAS_RING_BASE_FLOAT16_H_

#include <cstdint>
#include <cstring>

namespace keras_ring {

struct Float16 {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

namespace float16_internal {

inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// `condition ? a : b` as arithmetic. The compiler would turn the operator into
// a branch around a floating-point addition, which must not be executed
// speculatively, and then not vectorise.
inline uint32_t Select(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return (a & mask) | (b & ~mask);
}

inline constexpr uint32_t kFloatInfinity = 0x7f800000;
// What a float's exponent field has more than a float16's, in place.
inline constexpr uint32_t kRebias = (127 - 15) << 23;
// 2^-14, the smallest normal float16.
inline constexpr uint32_t kSmallestNormal = (127 - 14) << 23;
// 0.5: its unit in the last place is 2^-24, that of the subnormal float16s.
inline constexpr uint32_t kHalf = 126 << 23;

}  // namespace float16_internal

// Exact; NaN stays NaN.
inline float ToFloat(Float16 value) {
  using namespace float16_internal;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fff) << 13;
  const uint32_t normal = magnitude + kRebias;
  // A subnormal's mantissa under the exponent of 2^-14 reads as 2^-14 plus the
  // value.
  const uint32_t subnormal =
      BitsOf(FloatOf(magnitude + kSmallestNormal) - FloatOf(kSmallestNormal));
  const uint32_t special = magnitude | kFloatInfinity;
  uint32_t bits = Select(magnitude < (1u << 23), subnormal, normal);
  bits = Select(magnitude >= (31u << 23), special, bits);
  return FloatOf(bits | sign);
}

// Rounds to nearest, ties to even; beyond the largest finite value: infinity.
inline Float16 ToFloat16(float value) {
  using namespace float16_internal;
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  // The carry out of the mantissa into the exponent is what rounding up to the
  // next power of two, or to infinity, means.
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude - kRebias + 0xfff + odd) >> 13;
  // The addition rounds to the subnormals' unit in the last place.
  const uint32_t subnormal =
      BitsOf(FloatOf(magnitude) + FloatOf(kHalf)) - kHalf;
  const uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
  uint32_t result = Select(magnitude < kSmallestNormal, subnormal, normal);
  result = Select(magnitude >= ((127u + 16) << 23), 0x7c00, result);
  result = Select(magnitude > kFloatInfinity, nan, result);
  return Float16{static_cast<uint16_t>(result | sign)};
}

// Exact.
inline float ToFloat(Bfloat16 value) {
  return float16_internal::FloatOf(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even; beyond the largest finite value: infinity.
inline Bfloat16 ToBfloat16(float value) {
  using namespace float16_internal;
  const uint32_t bits = BitsOf(value);
  const uint32_t odd = (bits >> 16) & 1;
  const uint32_t rounded = (bits + 0x7fff + odd) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40;
  const bool is_nan = (bits & 0x7fffffff) > kFloatInfinity;
  return Bfloat16{static_cast<uint16_t>(is_nan ? nan : rounded)};
}

// In bulk. The arrays do not overlap.
template <typename Narrow>
inline void ToFloats(const Narrow* __restrict__ values,
                     float* __restrict__ floats, int64_t count) {
  for (int64_t i = 0; i < count; ++i) floats[i] = ToFloat(values[i]);
}
inline void FromFloats(const float* __restrict__ floats,
                       Float16* __restrict__ values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = ToFloat16(floats[i]);
}
inline void FromFloats(const float* __restrict__ floats,
                       Bfloat16* __restrict__ values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = ToBfloat16(floats[i]);
}

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_FLOAT16_H_
