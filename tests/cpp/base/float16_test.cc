#include "csrc/base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace keras_ring {
namespace {

// What is common to the two formats, so that each test is for both.
struct Float16Format {
  using Type = Float16;
  static constexpr int kMantissaBits = 10;
  static constexpr int kBias = 15;
  static Type FromFloat(float value) { return ToFloat16(value); }
};
struct Bfloat16Format {
  using Type = Bfloat16;
  static constexpr int kMantissaBits = 7;
  static constexpr int kBias = 127;
  static Type FromFloat(float value) { return ToBfloat16(value); }
};

template <typename Format>
class Float16Test : public testing::Test {
 protected:
  static constexpr int kExponents = 1 << (15 - Format::kMantissaBits);
  static constexpr uint16_t kInfinity = (kExponents - 1)
                                        << Format::kMantissaBits;

  // What the bits mean, by the definition of the format.
  static double Reference(uint16_t bits) {
    const int exponent = (bits & 0x7fff) >> Format::kMantissaBits;
    const int mantissa = bits & ((1 << Format::kMantissaBits) - 1);
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == kExponents - 1) {
      return mantissa ? std::numeric_limits<double>::quiet_NaN()
                      : sign * std::numeric_limits<double>::infinity();
    }
    const double significand =
        std::ldexp(mantissa, -Format::kMantissaBits) + (exponent ? 1.0 : 0.0);
    return sign *
           std::ldexp(significand, (exponent ? exponent : 1) - Format::kBias);
  }

  static float Widen(uint32_t bits) {
    return ToFloat(typename Format::Type{static_cast<uint16_t>(bits)});
  }
  static uint16_t Narrow(float value) { return Format::FromFloat(value).bits; }
};

using Formats = testing::Types<Float16Format, Bfloat16Format>;
TYPED_TEST_SUITE(Float16Test, Formats);

TYPED_TEST(Float16Test, EveryValueWidensExactly) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = this->Reference(bits);
    const float value = this->Widen(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(value, expected) << bits;
    }
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
  }
}

TYPED_TEST(Float16Test, EveryValueComesBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const uint16_t back = this->Narrow(this->Widen(bits));
    if (std::isnan(this->Reference(bits))) {
      ASSERT_TRUE(std::isnan(this->Widen(back))) << bits;
      ASSERT_EQ(back >= 0x8000, bits >= 0x8000) << bits;
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

// Between each two neighbours, the largest finite value and infinity included:
// the middle goes to the even one, and what lies next to it to the nearer one.
TYPED_TEST(Float16Test, RoundsToNearestEven) {
  for (uint32_t low = 0; low < this->kInfinity; ++low) {
    const uint32_t high = low + 1;
    // What would come after the largest finite value, were there room for it,
    // stands for infinity.
    const float above = high == this->kInfinity
                            ? 2 * this->Widen(low) - this->Widen(low - 1)
                            : this->Widen(high);
    if (std::isinf(above)) break;  // bfloat16: beyond float's range
    const float middle = this->Widen(low) + (above - this->Widen(low)) / 2;
    const float infinity = std::numeric_limits<float>::infinity();
    for (int sign : {0, 0x8000}) {
      const float s = sign ? -1.0f : 1.0f;
      const uint32_t even = low % 2 == 0 ? low : high;
      ASSERT_EQ(this->Narrow(s * middle), sign | even) << low;
      ASSERT_EQ(this->Narrow(s * std::nextafter(middle, 0.0f)), sign | low);
      ASSERT_EQ(this->Narrow(s * std::nextafter(middle, infinity)),
                sign | high);
    }
  }
}

TYPED_TEST(Float16Test, LargestFloatsBecomeInfinity) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(this->Narrow(largest), this->kInfinity);
  EXPECT_EQ(this->Narrow(-largest), 0x8000 | this->kInfinity);
}

TYPED_TEST(Float16Test, NanStaysNanWhateverItsPayload) {
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0x7f802000u,
                        0xff800001u, 0xffffffffu}) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    EXPECT_TRUE(std::isnan(this->Widen(this->Narrow(value)))) << bits;
  }
}

TYPED_TEST(Float16Test, TinyFloatsBecomeZeroOfTheirSign) {
  const float smallest = this->Widen(1);
  for (float value : {smallest / 4, smallest / 2}) {  // the latter is a tie
    EXPECT_EQ(this->Narrow(value), 0);
    EXPECT_EQ(this->Narrow(-value), 0x8000);
  }
}

// As the processor's own instruction does it.
TEST(Float16NanTest, BecomesQuietWithItsPayload) {
  for (uint16_t bits : {0x7c01, 0xfd55, 0x7e00, 0x7fff}) {
    const float value = ToFloat(Float16{bits});
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    const uint32_t payload = (bits & 0x3ff) << 13;
    EXPECT_EQ(wide, (bits >> 15) << 31 | 0x7fc00000 | payload) << bits;
  }
}

}  // namespace
}  // namespace keras_ring
