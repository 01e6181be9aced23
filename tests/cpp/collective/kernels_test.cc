#include "csrc/collective/kernels/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "csrc/base/float16.h"
#include "csrc/collective/kernels/reduce.h"

namespace keras_ring {
namespace {

constexpr int64_t kCounts[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 64, 1000, 4099};
constexpr int64_t kMaxCount = 4099;
constexpr int kNumSources[] = {1, 2, 3, 4, 7};
constexpr int kMaxSources = 7;

struct Scales {
  double prescale;
  Finish finish;
};
constexpr Scales kScales[] = {
    {1.0, {1, 1.0}}, {1.0, {2, 1.0}},     {0.3, {1, 1.0}},  {1.0, {1, 0.7}},
    {1.0, {3, 0.7}}, {1.0 / 3, {7, 1.1}}, {0.3, {64, 0.7}},
};
constexpr Scales kIntegerScales[] = {{1.0, {1, 1.0}}, {1.0, {3, 1.0}}};

std::vector<CpuLevel> Levels() {
  std::vector<CpuLevel> levels;
  for (int level = 0; level <= static_cast<int>(DetectCpuLevel()); ++level) {
    levels.push_back(static_cast<CpuLevel>(level));
  }
  return levels;
}

// --- What the kernels must compute, one number at a time ---

// Of a 16-bit float: a float. Otherwise the value.
template <typename Value>
auto Widen(Value value) {
  if constexpr (std::is_class_v<Value>) {
    return ToFloat(value);
  } else {
    return value;
  }
}

template <typename Value, typename Wide>
Value Narrow(Wide value) {
  if constexpr (std::is_same_v<Value, Float16>) {
    return ToFloat16(value);
  } else if constexpr (std::is_same_v<Value, Bfloat16>) {
    return ToBfloat16(value);
  } else {
    return static_cast<Value>(value);
  }
}

template <typename Wide>
Wide Operate(ReduceOp op, Wide a, Wide b) {
  if constexpr (std::is_floating_point_v<Wide>) {
    const bool minimum_or_maximum =
        op == ReduceOp::kMin || op == ReduceOp::kMax;
    if (std::isnan(a)) return minimum_or_maximum ? a : a + a;
    if (op == ReduceOp::kProduct) return a * b;
    if (!minimum_or_maximum) return a + b;
  } else {
    const uint64_t x = static_cast<uint64_t>(a);
    const uint64_t y = static_cast<uint64_t>(b);
    if (op == ReduceOp::kProduct) return static_cast<Wide>(x * y);
    if (op != ReduceOp::kMin && op != ReduceOp::kMax) {
      return static_cast<Wide>(x + y);
    }
  }
  if (op == ReduceOp::kMin) return a < b ? a : b;
  return a > b ? a : b;
}

template <typename Wide>
Wide FinishOne(Wide value, const Finish& finish) {
  if constexpr (std::is_integral_v<Wide>) {
    int64_t quotient = value / finish.divisor;
    if (quotient * finish.divisor > value) --quotient;
    return static_cast<Wide>(quotient);
  } else {
    if (finish.divisor != 1) value = value / static_cast<Wide>(finish.divisor);
    if (finish.postscale != 1.0) {
      value = value * static_cast<Wide>(finish.postscale);
    }
    return value;
  }
}

template <typename Wide, typename Value>
Wide PackOne(Value value, double prescale) {
  const Wide wide = Widen(value);
  if (std::is_integral_v<Wide> || prescale == 1.0) return wide;
  return static_cast<Wide>(wide * static_cast<Wide>(prescale));
}

template <typename Value, typename Wide>
Value FoldOne(ReduceOp op, const FoldArgs& args, int64_t i) {
  Wide result{};
  for (int s = 0; s < args.num_sources; ++s) {
    const Wide value = PackOne<Wide>(
        static_cast<const Value*>(args.sources[s])[i], args.prescale);
    result = s == 0 ? value : Operate(op, result, value);
  }
  return Narrow<Value>(FinishOne(result, args.finish));
}

// --- Numbers of all kinds ---

template <typename Value>
Value RandomValue(std::mt19937_64& random) {
  const uint64_t bits = random();
  Value any;
  std::memcpy(&any, &bits, sizeof(any));
  if constexpr (std::is_integral_v<Value>) {
    using Limits = std::numeric_limits<Value>;
    const Value special[] = {Limits::min(), Limits::max(), 0, 1,
                             static_cast<Value>(-1)};
    return bits >> 62 == 0 ? special[random() % 5] : any;
  } else {
    using Wide = decltype(Widen(any));
    using Limits = std::numeric_limits<Wide>;
    const Wide tiny = Limits::denorm_min();
    const Wide special[] = {Wide{0},
                            -Wide{0},
                            Limits::quiet_NaN(),
                            -Limits::quiet_NaN(),
                            Limits::signaling_NaN(),
                            Limits::infinity(),
                            -Limits::infinity(),
                            Limits::max(),
                            Limits::lowest(),
                            Limits::min(),
                            tiny,
                            -tiny};
    // Any bits are, of float16, a NaN once in 32.
    if (bits >> 61 == 0) return Narrow<Value>(special[random() % 12]);
    if (bits >> 61 == 1) return any;
    std::normal_distribution<double> usual(0.0, 100.0);
    return Narrow<Value>(static_cast<Wide>(usual(random)));
  }
}

// Elements at every distance from an aligned address: array s begins s + 1
// elements after one, and is followed by others that no one may touch.
template <typename Value>
class Array {
 public:
  explicit Array(int skew) : skew_(skew + 1) {
    std::memset(memory_, 0x5a, sizeof(memory_));
  }
  Value* data() { return memory_ + skew_; }
  const Value* data() const { return memory_ + skew_; }
  bool operator==(const Array& other) const {
    return std::memcmp(memory_, other.memory_, sizeof(memory_)) == 0;
  }

 private:
  alignas(64) Value memory_[kMaxCount + kMaxSources + 3];
  int skew_;
};

template <typename Value>
class FoldTester {
 public:
  // The wide types.
  using Usual = decltype(Widen(Value{}));
  using Average = std::conditional_t<std::is_integral_v<Value>, int64_t, Usual>;

  explicit FoldTester(DType dtype) : dtype_(dtype) {
    std::mt19937_64 random(static_cast<int>(dtype));
    for (int s = 0; s < kMaxSources; ++s) {
      inputs_.emplace_back(s);
      for (int64_t i = 0; i < kMaxCount; ++i) {
        inputs_[s].data()[i] = RandomValue<Value>(random);
      }
    }
  }

  // Calls check(op, args) for all that there is, but for the output.
  template <typename Check>
  void ForEachCase(Check check) const {
    for (int o = 0; o < kNumElementwiseOps; ++o) {
      const ReduceOp op = static_cast<ReduceOp>(o);
      for (const Scales& scales : ScalesOf(op)) {
        for (int64_t count : kCounts) {
          for (int num_sources : kNumSources) {
            FoldArgs args;
            const void* sources[kMaxSources];
            for (int s = 0; s < num_sources; ++s) sources[s] = Input(s);
            args.sources = sources;
            args.num_sources = num_sources;
            args.count = count;
            args.prescale = scales.prescale;
            args.finish = scales.finish;
            check(op, args);
            if (testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }

  Array<Value> Expected(ReduceOp op, const FoldArgs& args,
                        const Array<Value>& before) const {
    Array<Value> output = before;
    for (int64_t i = 0; i < args.count; ++i) {
      output.data()[i] = op == ReduceOp::kAverage
                             ? FoldOne<Value, Average>(op, args, i)
                             : FoldOne<Value, Usual>(op, args, i);
    }
    return output;
  }

  // Whether `wide` is the s-th source.
  template <typename Wide>
  static bool IsPacked(const void* wide, const FoldArgs& args, int s) {
    for (int64_t i = 0; i < args.count; ++i) {
      const Wide expected = PackOne<Wide>(
          static_cast<const Value*>(args.sources[s])[i], args.prescale);
      if (std::memcmp(static_cast<const Wide*>(wide) + i, &expected,
                      sizeof(expected)) != 0) {
        return false;
      }
    }
    return true;
  }

  // In place at each source, or apart (-1).
  void TestLevel(CpuLevel level, ReduceOp op, FoldArgs args) const {
    const FoldKernel fold = FindFoldKernel(dtype_, op, level);
    for (int place = -1; place < args.num_sources; ++place) {
      Array<Value> output = place < 0 ? Array<Value>(3) : inputs_[place];
      Array<Value> copy(5);
      const Array<Value> expected = Expected(op, args, output);
      const Array<Value> expected_copy = Expected(op, args, copy);
      std::vector<const void*> sources(args.sources,
                                       args.sources + args.num_sources);
      if (place >= 0) sources[place] = output.data();
      FoldArgs placed = args;
      placed.sources = sources.data();
      placed.output = output.data();
      fold(placed);
      ASSERT_TRUE(output == expected)
          << Describe(level, op, args) << " in place of " << place;
      if (place >= 0) output = inputs_[place];
      placed.copy = copy.data();
      fold(placed);
      ASSERT_TRUE(output == expected && copy == expected_copy)
          << Describe(level, op, args) << " with a copy";
    }
  }

  // To whole lines of the caches (-1), and not.
  void TestStreams(CpuLevel level, ReduceOp op, FoldArgs args) const {
    args.streams = true;
    for (int skew : {-1, 3}) {
      Array<Value> output(skew);
      const Array<Value> expected = Expected(op, args, output);
      args.output = output.data();
      FindFoldKernel(dtype_, op, level)(args);
      ASSERT_TRUE(output == expected)
          << Describe(level, op, args) << " past the caches";
    }
  }

  // With the kernels of pack.h and reduce.h.
  void TestSteps(CpuLevel level, ReduceOp op, const FoldArgs& args) const {
    const AccumulatorFormat& format = *FindWideFormat(dtype_, op, level);
    const ReduceKernel reduce = FindReduceKernel(format.dtype, op, level);
    std::vector<double> sum(args.count), next(args.count);
    for (int s = 0; s < args.num_sources; ++s) {
      void* wide = s == 0 ? sum.data() : next.data();
      format.pack(wide, args.sources[s], args.count, args.prescale);
      ASSERT_TRUE(op == ReduceOp::kAverage ? IsPacked<Average>(wide, args, s)
                                           : IsPacked<Usual>(wide, args, s))
          << Describe(level, op, args) << ", packing " << s;
      if (s > 0) reduce(sum.data(), next.data(), args.count);
    }
    format.finish(sum.data(), args.count, args.finish);
    Array<Value> output(2);
    const Array<Value> expected = Expected(op, args, output);
    format.unpack(output.data(), sum.data(), args.count);
    ASSERT_TRUE(output == expected) << Describe(level, op, args);
  }

 private:
  const Value* Input(int s) const { return inputs_[s].data(); }

  static std::vector<Scales> ScalesOf(ReduceOp op) {
    if (std::is_integral_v<Value>) {
      const int known = op == ReduceOp::kAverage ? 2 : 1;
      return {kIntegerScales, kIntegerScales + known};
    }
    return {std::begin(kScales), std::end(kScales)};
  }

  std::string Describe(CpuLevel level, ReduceOp op,
                       const FoldArgs& args) const {
    return std::string(CpuLevelName(level)) + " " + DTypeName(dtype_) + " " +
           ReduceOpName(op) + " of " + std::to_string(args.num_sources) +
           " x " + std::to_string(args.count) + ", " +
           std::to_string(args.prescale) + " / " +
           std::to_string(args.finish.divisor) + " * " +
           std::to_string(args.finish.postscale);
  }

  const DType dtype_;
  std::vector<Array<Value>> inputs_;
};

template <typename Function>
void WithTester(DType dtype, Function f) {
  switch (dtype) {
    case DType::kUint8:
      return f(FoldTester<uint8_t>(dtype));
    case DType::kInt8:
      return f(FoldTester<int8_t>(dtype));
    case DType::kUint16:
      return f(FoldTester<uint16_t>(dtype));
    case DType::kInt16:
      return f(FoldTester<int16_t>(dtype));
    case DType::kInt32:
      return f(FoldTester<int32_t>(dtype));
    case DType::kInt64:
      return f(FoldTester<int64_t>(dtype));
    case DType::kFloat16:
      return f(FoldTester<Float16>(dtype));
    case DType::kBfloat16:
      return f(FoldTester<Bfloat16>(dtype));
    case DType::kFloat32:
      return f(FoldTester<float>(dtype));
    case DType::kFloat64:
      return f(FoldTester<double>(dtype));
    default:
      FAIL() << DTypeName(dtype);
  }
}

std::vector<DType> ReducibleDTypes() {
  std::vector<DType> dtypes;
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (IsReducible(dtype)) dtypes.push_back(dtype);
  }
  return dtypes;
}

class KernelsTest : public testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, KernelsTest,
                         testing::ValuesIn(ReducibleDTypes()),
                         [](const auto& info) {
                           return std::string(DTypeName(info.param));
                         });

TEST_P(KernelsTest, FoldsHaveTheSameBitsAtEveryLevel) {
  WithTester(GetParam(), [](const auto& tester) {
    tester.ForEachCase([&tester](ReduceOp op, const FoldArgs& args) {
      for (CpuLevel level : Levels()) tester.TestLevel(level, op, args);
    });
  });
}

TEST_P(KernelsTest, WritesPastTheCachesHaveTheSameBits) {
  WithTester(GetParam(), [](const auto& tester) {
    tester.ForEachCase([&tester](ReduceOp op, const FoldArgs& args) {
      for (CpuLevel level : Levels()) tester.TestStreams(level, op, args);
    });
  });
}

TEST_P(KernelsTest, SingleStepsHaveTheSameBitsAtEveryLevel) {
  WithTester(GetParam(), [](const auto& tester) {
    tester.ForEachCase([&tester](ReduceOp op, const FoldArgs& args) {
      for (CpuLevel level : Levels()) tester.TestSteps(level, op, args);
    });
  });
}

TEST(FoldTest, WhatIsOnlyMovedHasNone) {
  for (CpuLevel level : Levels()) {
    for (DType dtype : {DType::kBool, DType::kComplex64, DType::kComplex128}) {
      EXPECT_EQ(FindFoldKernel(dtype, ReduceOp::kSum, level), nullptr);
    }
  }
}

TEST(FoldTest, NoElementsTouchNothing) {
  const void* sources[] = {nullptr, nullptr};
  FoldArgs args;
  args.sources = sources;
  args.num_sources = 2;
  for (CpuLevel level : Levels()) {
    for (DType dtype : ReducibleDTypes()) {
      FindFoldKernel(dtype, ReduceOp::kAverage, level)(args);
    }
  }
}

TEST(StreamCopyTest, CopiesEveryByteAndNoOther) {
  std::vector<char> from(5000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7);
  for (CpuLevel level : Levels()) {
    for (size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 200, 4096, 4097}) {
      for (size_t skew : {0, 1, 31, 32, 63, 64}) {
        std::vector<char> to(5000, 'x');
        std::vector<char> expected = to;
        std::copy_n(from.begin() + 3, bytes, expected.begin() + skew);
        StreamCopy(to.data() + skew, from.data() + 3, bytes, level);
        ASSERT_EQ(to, expected) << CpuLevelName(level) << bytes << "+" << skew;
      }
    }
    StreamCopy(nullptr, nullptr, 0, level);
  }
}

}  // namespace
}  // namespace keras_ring
