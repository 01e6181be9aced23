#include "csrc/collective/kernels/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "csrc/base/compression.h"
#include "csrc/base/float16.h"

namespace keras_ring {
namespace {

constexpr int64_t kCounts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 64, 65, 1000};
constexpr double kPrescales[] = {1.0, 0.5, 1.0 / 3, 1e3};

std::vector<CpuLevel> Levels() {
  std::vector<CpuLevel> levels;
  for (int level = 0; level <= static_cast<int>(DetectCpuLevel()); ++level) {
    levels.push_back(static_cast<CpuLevel>(level));
  }
  return levels;
}

// The significant bits of a format, the exponent of its smallest normal number
// and its largest number.
struct Grid {
  int digits;
  int smallest;
  double largest;
};
template <typename Wire>
Grid GridOf();
template <>
Grid GridOf<Float16>() {
  return {11, -14, 65504.0};
}
template <>
Grid GridOf<Bfloat16>() {
  return {8, -126, std::ldexp(255.0, 120)};
}

// To the nearest number of the grid, ties to even, by the arithmetic of
// doubles: nothing that the kernels use.
double Round(double value, const Grid& grid) {
  if (std::isnan(value) || std::isinf(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), grid.smallest);
  const int last_place = exponent - grid.digits + 1;
  const double rounded =
      std::ldexp(std::nearbyint(std::ldexp(value, -last_place)), last_place);
  if (std::abs(rounded) <= grid.largest) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), value);
}

// Numbers on the grid, in the middle between two of them, and a little off.
template <typename Value>
std::vector<Value> ValuesNear(const Grid& grid, int64_t count) {
  using Limits = std::numeric_limits<Value>;
  std::mt19937_64 random(count + sizeof(Value) + grid.digits);
  std::vector<Value> values;
  const Value special[] = {0,
                           -Value{0},
                           Limits::infinity(),
                           -Limits::infinity(),
                           Limits::quiet_NaN(),
                           Limits::signaling_NaN(),
                           Limits::max(),
                           Limits::lowest(),
                           Limits::min(),
                           Limits::denorm_min(),
                           static_cast<Value>(grid.largest),
                           static_cast<Value>(-grid.largest)};
  while (static_cast<int64_t>(values.size()) < count) {
    const uint64_t kind = random() % 8;
    if (kind == 0) {
      values.push_back(special[random() % std::size(special)]);
      continue;
    }
    if (kind == 1) {  // any bits
      const uint64_t bits = random();
      Value any;
      std::memcpy(&any, &bits, sizeof(any));
      values.push_back(any);
      continue;
    }
    // From below the smallest subnormal to above the largest number.
    const int lowest = grid.smallest - grid.digits - 2;
    const int highest = std::ilogb(grid.largest) + 2;
    const int exponent =
        kind < 4 ? lowest + static_cast<int>(random() % (highest - lowest))
                 : static_cast<int>(random() % 20) - 10;
    const int last_place = std::max(exponent, grid.smallest) - grid.digits + 1;
    const double place = std::ldexp(1.0, last_place);
    const double on_grid =
        std::floor(std::ldexp(1.0 + (random() % 4096) / 4096.0, exponent) /
                   place) *
        place;
    const double off = random() % 3 * std::ldexp(place, -1);
    Value value = static_cast<Value>(on_grid + off);
    // The neighbour of a tie is none.
    const Value infinity = Limits::infinity();
    if (random() % 3 == 0) value = std::nextafter(value, infinity);
    if (random() % 3 == 0) value = std::nextafter(value, -infinity);
    values.push_back(random() % 2 ? value : -value);
  }
  return values;
}

// Calls f(Value(), Wire(), dtype, wire dtype) for each pair.
template <typename Function>
void ForEachPair(Function f) {
  f(float(), Float16(), DType::kFloat32, DType::kFloat16);
  f(float(), Bfloat16(), DType::kFloat32, DType::kBfloat16);
  f(double(), Float16(), DType::kFloat64, DType::kFloat16);
  f(double(), Bfloat16(), DType::kFloat64, DType::kBfloat16);
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

std::string Describe(CpuLevel level, DType dtype, DType wire_dtype,
                     int64_t count) {
  return std::string(CpuLevelName(level)) + " " + DTypeName(dtype) + " as " +
         DTypeName(wire_dtype) + ", " + std::to_string(count);
}

TEST(CodecTest, OnlyWiderFloatsHaveOne) {
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int w = 0; w < kNumDTypes; ++w) {
      const DType dtype = static_cast<DType>(d);
      const DType wire = static_cast<DType>(w);
      const bool has = (dtype == DType::kFloat32 || dtype == DType::kFloat64) &&
                       (wire == DType::kFloat16 || wire == DType::kBfloat16);
      EXPECT_EQ(FindCodec(dtype, wire) != nullptr, has)
          << DTypeName(dtype) << " as " << DTypeName(wire);
    }
    // What is compressed is what has a codec.
    for (Compression compression :
         {Compression::kNone, Compression::kFloat16, Compression::kBfloat16}) {
      const DType dtype = static_cast<DType>(d);
      const DType wire = WireDType(dtype, compression);
      EXPECT_EQ(FindCodec(dtype, wire) != nullptr, wire != dtype);
    }
  }
}

TEST(CodecTest, PacksAsIfRoundedOnceAtEveryLevel) {
  ForEachPair([](auto value, auto wire, DType dtype, DType wire_dtype) {
    using Value = decltype(value);
    using Wire = decltype(wire);
    const Grid grid = GridOf<Wire>();
    for (int64_t count : kCounts) {
      const auto values = ValuesNear<Value>(grid, count);
      for (double prescale : kPrescales) {
        std::vector<Wire> first;
        for (CpuLevel level : Levels()) {
          const Codec& codec = *FindCodec(dtype, wire_dtype, level);
          ASSERT_EQ(codec.wire_size, sizeof(Wire));
          std::vector<Wire> packed(count + 1, Wire{0x5a5a});
          codec.pack(packed.data(), values.data(), count, prescale);
          ASSERT_EQ(packed[count].bits, 0x5a5a) << "written behind the end";
          packed.pop_back();
          if (level == CpuLevel::kBaseline) first = packed;
          ASSERT_TRUE(SameBits(packed, first))
              << Describe(level, dtype, wire_dtype, count);
          for (int64_t i = 0; i < count; ++i) {
            const Value product = values[i] * static_cast<Value>(prescale);
            const double expected = Round(product, grid);
            const float got = ToFloat(packed[i]);
            ASSERT_TRUE(std::isnan(expected)
                            ? std::isnan(got)
                            : got == expected &&
                                  std::signbit(got) == std::signbit(expected))
                << Describe(level, dtype, wire_dtype, count) << ": " << product
                << " gives " << got << ", not " << expected;
          }
        }
      }
    }
  });
}

// All numbers that there are.
TEST(CodecTest, UnpacksExactlyAtEveryLevel) {
  ForEachPair([](auto value, auto wire, DType dtype, DType wire_dtype) {
    using Value = decltype(value);
    using Wire = decltype(wire);
    for (CpuLevel level : Levels()) {
      const Codec& codec = *FindCodec(dtype, wire_dtype, level);
      for (int64_t count : {1, 17, 65536}) {
        std::vector<Wire> packed;
        std::vector<Value> expected;
        for (int64_t bits = 0; bits < count; ++bits) {
          packed.push_back(Wire{static_cast<uint16_t>(bits)});
          expected.push_back(ToFloat(packed.back()));
        }
        std::vector<Value> values(count);
        codec.unpack(values.data(), packed.data(), count);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_TRUE(values[i] == expected[i] ||
                      (std::isnan(values[i]) && std::isnan(expected[i])))
              << Describe(level, dtype, wire_dtype, count) << " " << i;
        }
      }
    }
  });
}

// With the bits of the wire dtype's own fold, which kernels_test.cc compares
// with a loop over the numbers.
TEST(CodecTest, FoldsLikeTensorsOfTheWireDType) {
  static constexpr int kSources = 5;
  ForEachPair([](auto value, auto wire, DType dtype, DType wire_dtype) {
    using Value = decltype(value);
    using Wire = decltype(wire);
    std::mt19937_64 random(7);
    for (int64_t count : kCounts) {
      std::vector<std::vector<Wire>> sources(kSources);
      const void* pointers[kSources];
      for (int s = 0; s < kSources; ++s) {
        for (int64_t i = 0; i < count; ++i) {
          const float number =
              static_cast<float>(random() % 4001) / 16 - 125.0f;
          const uint16_t bits = wire_dtype == DType::kFloat16
                                    ? ToFloat16(number).bits
                                    : ToBfloat16(number).bits;
          const auto any = static_cast<uint16_t>(random());
          sources[s].push_back(Wire{random() % 16 == 0 ? any : bits});
        }
        pointers[s] = sources[s].data();
      }
      for (int o = 0; o < kNumElementwiseOps; ++o) {
        const ReduceOp op = static_cast<ReduceOp>(o);
        for (CpuLevel level : Levels()) {
          const Codec& codec = *FindCodec(dtype, wire_dtype, level);
          FoldArgs args;
          args.sources = pointers;
          args.num_sources = kSources;
          args.count = count;
          args.finish = {3, 0.7};
          std::vector<Wire> expected(count), copy(count);
          args.output = expected.data();
          FindFoldKernel(wire_dtype, op, level)(args);
          std::vector<Value> expected_output(count), output(count);
          codec.unpack(expected_output.data(), expected.data(), count);
          args.output = output.data();
          codec.fold[o](args);
          ASSERT_TRUE(SameBits(output, expected_output))
              << Describe(level, dtype, wire_dtype, count);
          output.assign(count, 0);
          args.copy = copy.data();
          codec.fold[o](args);
          ASSERT_TRUE(SameBits(output, expected_output) &&
                      SameBits(copy, expected))
              << Describe(level, dtype, wire_dtype, count) << " with a copy";
        }
      }
    }
  });
}

TEST(CodecTest, NoElementsTouchNothing) {
  const void* sources[] = {nullptr, nullptr};
  FoldArgs args;
  args.sources = sources;
  args.num_sources = 2;
  for (CpuLevel level : Levels()) {
    const Codec& codec = *FindCodec(DType::kFloat64, DType::kBfloat16, level);
    codec.pack(nullptr, nullptr, 0, 0.5);
    codec.unpack(nullptr, nullptr, 0);
    codec.fold[0](args);
  }
}

}  // namespace
}  // namespace keras_ring
