// The tests of collective_conformance.h, for whoever instantiates them.
#include "csrc/testing/collective_conformance.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace keras_ring {

TEST_P(CollectiveConformance, AllreduceOfEveryDTypeOpAndCount) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    for (ReduceOp op : conformance::kOps) {
      for (int64_t count : Counts()) {
        for (bool in_place : {true, false}) {
          auto values = conformance::ExactValues<T>(size_, count, tag_);
          ExpectEverywhere(Allreduce(values, Args(dtype, op), in_place),
                           conformance::ReduceExactly(values, op),
                           std::string(DTypeName(dtype)) + " " +
                               ReduceOpName(op) + " of " +
                               std::to_string(count));
          if (HasFailure()) return;
        }
      }
    }
  };
  conformance::ForEachInteger(test);
  conformance::ForEachFloat(test);
}

TEST_P(CollectiveConformance, AllreduceOfManyTensors) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      std::vector<conformance::PerRank<T>> values;
      for (int64_t count : {3, 0, 1, 700, 64, 2, 0, 130, 1501, 5, 5, 0}) {
        values.push_back(
            conformance::ExactValues<T>(size_, count, tag_ + values.size()));
      }
      // Whether a tensor is in place may differ between ranks.
      auto results = Allreduce<T>(values, Args(dtype, op), [](int r, size_t t) {
        return (r + t) % 2 == 0;
      });
      for (size_t t = 0; t < values.size(); ++t) {
        ExpectEverywhere(
            results[t], conformance::ReduceExactly(values[t], op),
            std::string(DTypeName(dtype)) + " tensor " + std::to_string(t));
      }
    }
  };
  conformance::ForEachInteger(test);
  conformance::ForEachFloat(test);
}

TEST_P(CollectiveConformance, AllreduceOfNoTensors) {
  RunRanks(size_, [&](int rank) {
    AllreduceArgs args;
    args.tag = 1;
    EXPECT_TRUE(collective(rank).Allreduce(args).ok());
  });
}

// Random values and scales: near what exact arithmetic gives, and with the same
// bits on all ranks.
TEST_P(CollectiveConformance, AllreduceOfRandomFloatsWithScales) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    std::mt19937_64 random(tag_);
    std::normal_distribution<double> normal(0.0, 1.0);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      for (auto [prescale, postscale] :
           {std::pair{1.0, 1.0}, {1.0 / 3, 1.0}, {1.0, 0.1}, {0.7, 3.0}}) {
        for (bool in_place : {true, false}) {
          conformance::PerRank<T> values(size_, std::vector<T>(301));
          for (auto& of_rank : values) {
            for (T& value : of_rank) {
              value = conformance::Narrow<T>(normal(random));
            }
          }
          AllreduceArgs args = Args(dtype, op);
          args.prescale = prescale;
          args.postscale = postscale;
          auto results = Allreduce(values, args, in_place);
          for (size_t i = 0; i < 301; ++i) {
            double sum = 0;
            double magnitude = 0;
            for (const auto& of_rank : values) {
              sum += conformance::Widen(of_rank[i]);
              magnitude += std::abs(conformance::Widen(of_rank[i]));
            }
            const double divisor = op == ReduceOp::kAverage ? size_ : 1;
            const double scale = prescale * postscale / divisor;
            // Roundings: each scale and its use (4), n - 1 sums, the division,
            // each at most half a unit of a number no larger than `magnitude`;
            // then one to what is stored. Twice for their products.
            const double epsilon =
                std::numeric_limits<conformance::WideType<T>>::epsilon();
            const double tolerance =
                scale * ((size_ + 4) * epsilon * magnitude +
                         conformance::StorageRounding<T>() *
                             (std::abs(sum) + (Roundings() - 1) * magnitude)) +
                std::ldexp(1.0, -25);  // half a subnormal float16
            EXPECT_NEAR(conformance::Widen(results[0][i]), sum * scale,
                        tolerance)
                << DTypeName(dtype);
          }
          ExpectEverywhere(results, results[0], DTypeName(dtype));
          if (HasFailure()) return;
        }
      }
    }
  };
  conformance::ForEachFloat(test);
}

// Values whose sums are exact in float32, in any order, but not in 16 bits: the
// result must be the exact sum, rounded once.
TEST_P(CollectiveConformance, SixteenBitFloatsAreRoundedOnce) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    if (sizeof(T) != 2) return;
    std::mt19937_64 random(tag_);
    conformance::PerRank<T> values(size_, std::vector<T>(1000));
    for (auto& of_rank : values) {
      for (T& value : of_rank) {
        const int exponent = static_cast<int>(random() % 9) - 4;
        const double mantissa = 1.0 + (random() % 128) / 128.0;
        value = conformance::Narrow<T>(std::ldexp(mantissa, exponent) *
                                       (random() % 2 ? 1 : -1));
      }
    }
    ExpectEverywhere(Allreduce(values, Args(dtype, ReduceOp::kSum)),
                     conformance::ReduceExactly(values, ReduceOp::kSum),
                     DTypeName(dtype));
  };
  conformance::ForEachFloat(test);
}

TEST_P(CollectiveConformance, NanAndInfinityReachEveryRank) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    const double infinity = std::numeric_limits<double>::infinity();
    const double nan = std::numeric_limits<double>::quiet_NaN();
    // Element r is special on rank r: NaN, in the first tensor, and infinity
    // in the second.
    auto special = [&](double value) {
      conformance::PerRank<T> values(
          size_, std::vector<T>(size_ + 3, conformance::Narrow<T>(1.0)));
      for (int r = 0; r < size_; ++r) {
        values[r][r] = conformance::Narrow<T>(value);
      }
      return values;
    };
    for (ReduceOp op : conformance::kOps) {
      auto results = Allreduce(special(nan), Args(dtype, op));
      for (int i = 0; i < size_ + 3; ++i) {
        EXPECT_EQ(std::isnan(conformance::Widen(results[0][i])), i < size_)
            << DTypeName(dtype) << " " << ReduceOpName(op) << " " << i;
      }
      ExpectEverywhere(results, results[0], "NaN");
      results = Allreduce(special(infinity), Args(dtype, op));
      const bool kept = op != ReduceOp::kMin || size_ == 1;
      for (int i = 0; i < size_ + 3; ++i) {
        EXPECT_EQ(std::isinf(conformance::Widen(results[0][i])),
                  kept && i < size_)
            << DTypeName(dtype) << " " << ReduceOpName(op) << " " << i;
      }
      ExpectEverywhere(results, results[0], "infinity");
    }
    if (size_ == 1) return;
    conformance::PerRank<T> opposite(
        size_, std::vector<T>(5, conformance::Narrow<T>(infinity)));
    opposite[1].assign(5, conformance::Narrow<T>(-infinity));
    auto results = Allreduce(opposite, Args(dtype, ReduceOp::kSum));
    EXPECT_TRUE(std::isnan(conformance::Widen(results[0][0])));
    ExpectEverywhere(results, results[0], "infinity - infinity");
  };
  conformance::ForEachFloat(test);
}

// The mean of equal values is that value as long as their sum is exact.
TEST_P(CollectiveConformance, TheMeanOfEqualValuesIsThatValue) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    if (IsFloating(dtype) && sizeof(T) == 2 && Roundings() > 1) return;
    std::mt19937_64 random(tag_);
    std::vector<T> equal(200);
    for (T& value : equal) {
      // 16 bits at most: with three more, still exact in float32.
      const double number = static_cast<double>(random() % 65536) - 32768;
      value = conformance::Narrow<T>(
          std::is_integral_v<T> ? std::floor(number / 512) + 64 : number / 256);
    }
    conformance::PerRank<T> values(size_, equal);
    ExpectEverywhere(Allreduce(values, Args(dtype, ReduceOp::kAverage)), equal,
                     DTypeName(dtype));
  };
  conformance::ForEachInteger(test);
  conformance::ForEachFloat(test);
}

// --- Adasum ---

namespace conformance {

using Doubles = std::vector<double>;

inline double Dot(const Doubles& a, const Doubles& b) {
  long double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<long double>(a[i]) * b[i];
  }
  return static_cast<double>(sum);
}

inline Doubles AdasumOfTwo(const Doubles& a, const Doubles& b) {
  const double ab = Dot(a, b);
  const double aa = Dot(a, a);
  const double bb = Dot(b, b);
  const double of_a = aa == 0 ? 1 : 1 - ab / (2 * aa);
  const double of_b = bb == 0 ? 1 : 1 - ab / (2 * bb);
  Doubles result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = of_a * a[i] + of_b * b[i];
  return result;
}

// vectors[rank], as adasum.h says.
inline Doubles AdasumOf(std::vector<Doubles> vectors) {
  while (vectors.size() > 1) {
    std::vector<Doubles> next;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) {
      next.push_back(AdasumOfTwo(vectors[i], vectors[i + 1]));
    }
    if (vectors.size() % 2 == 1) next.push_back(vectors.back());
    vectors = std::move(next);
  }
  return vectors.front();
}

}  // namespace conformance

// Each tensor by itself, whatever shares its bucket, its slices and its round.
TEST_P(CollectiveConformance, AdasumOfManyTensors) {
  auto test = [&](auto sample, DType dtype, Compression compression) {
    using T = decltype(sample);
    std::mt19937_64 random(tag_);
    std::normal_distribution<double> normal(0.0, 1.0);
    const int64_t counts[] = {1, 3, 0, 700, 64, 2, 0, 130, 1501, 5, 17, 0};
    for (auto [prescale, postscale] : {std::pair{1.0, 1.0}, {0.5, 3.0}}) {
      std::vector<conformance::PerRank<T>> values;
      for (int64_t count : counts) {
        // Something in common, so that the dot products matter.
        conformance::Doubles common(count);
        for (double& value : common) value = normal(random);
        conformance::PerRank<T> tensor(size_, std::vector<T>(count));
        for (auto& of_rank : tensor) {
          for (int64_t i = 0; i < count; ++i) {
            // Numbers of every float, so that compression does not round.
            of_rank[i] = conformance::Narrow<T>(
                std::round((common[i] + normal(random)) * 8) / 8);
          }
        }
        values.push_back(std::move(tensor));
      }
      // One rank has nothing but zeros in one tensor, all in another.
      values[3][size_ - 1].assign(700, conformance::Narrow<T>(0));
      for (auto& of_rank : values[4]) {
        of_rank.assign(64, conformance::Narrow<T>(0));
      }
      AllreduceArgs args = Args(dtype, ReduceOp::kAdasum);
      args.compression = compression;
      args.prescale = prescale;
      args.postscale = postscale;
      auto results = Allreduce<T>(
          values, args, [](int rank, size_t t) { return (rank + t) % 2 == 0; });
      for (size_t t = 0; t < values.size(); ++t) {
        std::vector<conformance::Doubles> vectors;
        double largest = 0;
        for (const auto& of_rank : values[t]) {
          conformance::Doubles vector;
          for (const T& value : of_rank) {
            vector.push_back(conformance::Widen(value) * prescale);
            largest = std::max(largest, std::abs(vector.back()));
          }
          vectors.push_back(std::move(vector));
        }
        const conformance::Doubles expected = conformance::AdasumOf(vectors);
        // A level rounds each element once, and amplifies what it was given by
        // its factors: with these values not more than tenfold in all. Then
        // comes the rounding to what is stored.
        const double epsilon =
            std::numeric_limits<conformance::WideType<T>>::epsilon();
        const double stored =
            compression == Compression::kBfloat16  ? std::ldexp(1.0, -8)
            : compression == Compression::kFloat16 ? std::ldexp(1.0, -11)
                                                   : 0.0;
        const double rounding = std::max(
            stored, static_cast<double>(conformance::StorageRounding<T>()));
        const double wide_epsilon =
            stored > 0 ? std::numeric_limits<float>::epsilon() : epsilon;
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(conformance::Widen(results[t][0][i]),
                      expected[i] * postscale,
                      postscale * (rounding * std::abs(expected[i]) +
                                   40 * wide_epsilon * largest))
              << DTypeName(dtype) << " tensor " << t << ", element " << i;
        }
        ExpectEverywhere(results[t], results[t][0], DTypeName(dtype));
        if (HasFailure()) return;
      }
    }
  };
  conformance::ForEachFloat([&](auto sample, DType dtype) {
    test(sample, dtype, Compression::kNone);
  });
  test(float(), DType::kFloat32, Compression::kFloat16);
  test(double(), DType::kFloat64, Compression::kBfloat16);
}

TEST_P(CollectiveConformance, AdasumIsASumAtRightAnglesAndAMeanOfEquals) {
  conformance::PerRank<float> apart(size_, std::vector<float>(size_));
  for (int rank = 0; rank < size_; ++rank) apart[rank][rank] = rank + 1.0f;
  std::vector<float> sum;
  for (int rank = 0; rank < size_; ++rank) sum.push_back(rank + 1.0f);
  ExpectEverywhere(Allreduce(apart, Args(DType::kFloat32, ReduceOp::kAdasum)),
                   sum, "at right angles");
  const std::vector<float> one = {1.0f, -2.0f, 0.5f};
  const conformance::PerRank<float> equal(size_, one);
  ExpectEverywhere(Allreduce(equal, Args(DType::kFloat32, ReduceOp::kAdasum)),
                   one, "equal");
}

// --- Compressed ---

// What travels as W of `values`: the sum, of which each level rounds its part.
template <typename W, typename Add>
float AddByLevels(std::vector<float> values,
                  const std::vector<GroupsOfLevel>& levels, const Add& add) {
  for (const GroupsOfLevel& groups : levels) {
    std::vector<float> of_groups;
    for (const std::vector<int>& members : groups) {
      float sum = values[members.front()];
      for (size_t m = 1; m < members.size(); ++m) add(sum, values[members[m]]);
      of_groups.push_back(ToFloat(conformance::RoundTo<W>(sum)));
    }
    values = of_groups;
  }
  float sum = values.front();
  for (size_t k = 1; k < values.size(); ++k) add(sum, values[k]);
  return sum;
}

// Values that are no numbers of the wire dtype, so that they are rounded; those
// of the wire dtype add up exactly in float32, in any order. (7 times 32 at
// most; the last place of the smallest is 2^-14.)
TEST_P(CollectiveConformance, CompressedAllreduceRoundsTwice) {
  auto test = [&](auto sample, DType dtype, auto wire,
                  Compression compression) {
    using T = decltype(sample);
    using W = decltype(wire);
    const std::vector<GroupsOfLevel> levels = Levels();
    std::mt19937_64 random(tag_);
    // Around the borders of what a test's small slots and buffers take.
    std::vector<int64_t> counts = Counts();
    for (int64_t border : {8, 16, 24, 32, 48, 64, 170}) {
      for (int64_t factor : {int64_t{1}, int64_t{size_}}) {
        for (int64_t off : {-1, 0, 1}) counts.push_back(border * factor + off);
      }
    }
    for (ReduceOp op :
         {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      for (auto [prescale, postscale] : {std::pair{1.0, 1.0}, {1.0 / 3, 0.7}}) {
        // Whether a tensor is in place may differ between ranks.
        std::vector<conformance::PerRank<T>> values;
        std::vector<std::vector<T>> expected;
        for (int64_t count : counts) {
          conformance::PerRank<T> tensor(size_, std::vector<T>(count));
          for (auto& of_rank : tensor) {
            for (T& value : of_rank) {
              const double magnitude = std::ldexp(
                  1.0 + static_cast<double>(random() % 100003) / 100003,
                  static_cast<int>(random() % 6) - 2);
              value = static_cast<T>(random() % 2 ? magnitude : -magnitude);
            }
          }
          std::vector<T> result(count);
          const auto add = [op](float& sum, float value) {
            if (op == ReduceOp::kMin) {
              sum = std::min(sum, value);
            } else if (op == ReduceOp::kMax) {
              sum = std::max(sum, value);
            } else {
              sum += value;
            }
          };
          for (int64_t i = 0; i < count; ++i) {
            std::vector<float> rounded;
            for (const auto& of_rank : tensor) {
              const T product = of_rank[i] * static_cast<T>(prescale);
              rounded.push_back(ToFloat(conformance::RoundTo<W>(product)));
            }
            float sum = AddByLevels<W>(rounded, levels, add);
            if (op == ReduceOp::kAverage) sum /= static_cast<float>(size_);
            if (postscale != 1.0) sum *= static_cast<float>(postscale);
            result[i] = ToFloat(conformance::RoundTo<W>(sum));
          }
          values.push_back(std::move(tensor));
          expected.push_back(std::move(result));
        }
        auto check = [&](const auto& results, size_t from) {
          for (size_t t = 0; t < results.size(); ++t) {
            ExpectEverywhere(results[t], expected[from + t],
                             std::string(DTypeName(dtype)) + " as " +
                                 CompressionName(compression) + " " +
                                 ReduceOpName(op) + " of " +
                                 std::to_string(counts[from + t]));
          }
        };
        AllreduceArgs args = Args(dtype, op);
        args.compression = compression;
        args.prescale = prescale;
        args.postscale = postscale;
        auto some = [](int rank, size_t t) { return (rank + t) % 2 == 0; };
        check(Allreduce<T>(values, args, some), 0);
        for (size_t t = 0; t < values.size(); ++t) {
          args.tag = NextTag();
          const std::vector<conformance::PerRank<T>> alone = {values[t]};
          check(Allreduce<T>(alone, args, some), t);
          if (HasFailure()) return;
        }
      }
    }
  };
  test(float(), DType::kFloat32, Float16(), Compression::kFloat16);
  test(float(), DType::kFloat32, Bfloat16(), Compression::kBfloat16);
  test(double(), DType::kFloat64, Float16(), Compression::kFloat16);
  test(double(), DType::kFloat64, Bfloat16(), Compression::kBfloat16);
}

// Around the borders of the usual slots' regimes.
TEST_P(CollectiveConformance, CompressedAllreduceOfManyElements) {
  for (int64_t count : {32768, 65536, 65537, 200001}) {
    conformance::PerRank<float> values(size_, std::vector<float>(count));
    std::vector<float> expected(count);
    for (int64_t i = 0; i < count; ++i) {
      for (int rank = 0; rank < size_; ++rank) {
        const float value = static_cast<float>((i + rank) % 256 + 2);
        values[rank][i] = value + 1.0f / 4096;  // lost in the rounding
        expected[i] += value;
      }
    }
    AllreduceArgs args = Args(DType::kFloat32, ReduceOp::kSum);
    args.compression = Compression::kFloat16;
    ExpectEverywhere(Allreduce(values, args), expected,
                     std::to_string(count) + " elements");
    if (HasFailure()) return;
  }
}

TEST_P(CollectiveConformance, CompressedNanInfinityAndOverflow) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (Compression compression :
       {Compression::kFloat16, Compression::kBfloat16}) {
    const bool is_float16 = compression == Compression::kFloat16;
    // Element 0: a NaN on the last rank. 1: too large for float16 there. 2: a
    // sum that is too large for it, of values that are not.
    conformance::PerRank<float> values(size_, {1.0f, 1.0f, 40960.0f});
    values[size_ - 1][0] = std::numeric_limits<float>::quiet_NaN();
    values[size_ - 1][1] = -65536.0f;
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      AllreduceArgs args = Args(DType::kFloat32, op);
      args.compression = compression;
      const auto results = Allreduce(values, args);
      ExpectEverywhere(results, results[0], CompressionName(compression));
      const std::vector<float>& result = results[0];
      EXPECT_TRUE(std::isnan(result[0]));
      if (is_float16) {
        EXPECT_EQ(result[1], -infinity);
      } else {
        EXPECT_TRUE(std::isfinite(result[1]));
      }
      const bool overflows = is_float16 && op == ReduceOp::kSum && size_ > 1;
      EXPECT_EQ(std::isinf(result[2]), overflows);
      // Divided before it is rounded.
      if (op == ReduceOp::kAverage) {
        EXPECT_EQ(result[2], 40960.0f);
      }
    }
  }
}

// What is not wider than the wire dtype travels as it is.
TEST_P(CollectiveConformance, CompressionLeavesOthersAlone) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    if (IsFloating(dtype) && sizeof(T) > 2) return;
    for (Compression compression :
         {Compression::kFloat16, Compression::kBfloat16}) {
      auto values = conformance::ExactValues<T>(size_, 301, tag_);
      AllreduceArgs args = Args(dtype, ReduceOp::kSum);
      args.compression = compression;
      ExpectEverywhere(Allreduce(values, args),
                       conformance::ReduceExactly(values, ReduceOp::kSum),
                       DTypeName(dtype));
    }
  };
  conformance::ForEachInteger(test);
  conformance::ForEachFloat(test);
}

TEST_P(CollectiveConformance, CompressedReducescatter) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 6; ++round) {
    std::vector<int64_t> counts(size_);
    int64_t total = 0;
    for (int64_t& count : counts) {
      count = random() % 3 == 0 ? 0 : random() % 500;
      total += count;
    }
    conformance::PerRank<double> values(size_, std::vector<double>(total));
    std::vector<double> expected(total);
    for (int64_t i = 0; i < total; ++i) {
      std::vector<float> rounded;
      for (int rank = 0; rank < size_; ++rank) {
        values[rank][i] = 1.0 + static_cast<double>(random() % 100003) / 100003;
        rounded.push_back(
            ToFloat(conformance::RoundTo<Bfloat16>(values[rank][i] * 0.5)));
      }
      const float sum = AddByLevels<Bfloat16>(
          rounded, Levels(), [](float& to, float value) { to += value; });
      expected[i] = ToFloat(
          conformance::RoundTo<Bfloat16>(sum / static_cast<float>(size_)));
    }
    const uint64_t tag = NextTag();
    RunRanks(size_, [&](int rank) {
      std::vector<double> output(counts[rank]);
      ReducescatterArgs args;
      args.tag = tag;
      args.input = values[rank].data();
      args.output = output.data();
      args.count_per_rank = counts;
      args.dtype = DType::kFloat64;
      args.op = ReduceOp::kAverage;
      args.prescale = 0.5;
      args.divisor = size_;
      args.compression = Compression::kBfloat16;
      const Status status = collective(rank).Reducescatter(args);
      EXPECT_TRUE(status.ok()) << status.ToString();
      int64_t begin = 0;
      for (int r = 0; r < rank; ++r) begin += counts[r];
      const std::vector<double> block(expected.begin() + begin,
                                      expected.begin() + begin + counts[rank]);
      EXPECT_EQ(conformance::Bytes(output), conformance::Bytes(block))
          << "on rank " << rank;
    });
    if (HasFailure()) return;
  }
}

TEST_P(CollectiveConformance, AllgatherOfUnevenBlocks) {
  std::mt19937_64 random(1);
  std::vector<std::vector<size_t>> cases = {std::vector<size_t>(size_, 0),
                                            std::vector<size_t>(size_, 1),
                                            std::vector<size_t>(size_, 1000)};
  for (int alone = 0; alone < size_; ++alone) {
    cases.emplace_back(size_, 0);
    cases.back()[alone] = 333;
  }
  for (int i = 0; i < 10; ++i) {
    cases.emplace_back(size_);
    for (size_t& bytes : cases.back()) {
      bytes = random() % 3 == 0 ? 0 : random() % 2000;
    }
  }
  for (const std::vector<size_t>& bytes_per_rank : cases) {
    std::vector<std::string> blocks;
    std::string expected;
    for (size_t bytes : bytes_per_rank) {
      std::string block;
      for (size_t i = 0; i < bytes; ++i) block += static_cast<char>(random());
      blocks.push_back(block);
      expected += block;
    }
    for (bool in_place : {false, true}) {
      const uint64_t tag = NextTag();
      RunRanks(size_, [&](int rank) {
        std::string output(expected.size(), '?');
        size_t begin = 0;
        for (int r = 0; r < rank; ++r) begin += bytes_per_rank[r];
        if (in_place) output.replace(begin, blocks[rank].size(), blocks[rank]);
        AllgatherArgs args;
        args.tag = tag;
        args.input = in_place ? &output[begin] : blocks[rank].data();
        args.output = output.data();
        args.bytes_per_rank = bytes_per_rank;
        const Status status = collective(rank).Allgather(args);
        EXPECT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(output, expected) << "on rank " << rank;
      });
    }
  }
}

TEST_P(CollectiveConformance, BroadcastFromEveryRoot) {
  const std::vector<size_t> sizes = {5, 0, 1, 3000, 48, 49, 47, 0};
  for (int root = 0; root < size_; ++root) {
    for (bool in_place : {false, true}) {
      std::vector<std::string> contents;
      for (size_t bytes : sizes) {
        std::string content;
        for (size_t i = 0; i < bytes; ++i) {
          content += static_cast<char>(i * 7 + root);
        }
        contents.push_back(content);
      }
      const uint64_t tag = NextTag();
      RunRanks(size_, [&](int rank) {
        std::vector<std::string> inputs = contents;
        if (rank != root) {
          for (std::string& input : inputs) input.assign(input.size(), 'x');
        }
        std::vector<std::string> outputs = inputs;
        if (!in_place) {
          for (std::string& output : outputs) output.assign(output.size(), '?');
        }
        BroadcastArgs args;
        args.tag = tag;
        args.root = root;
        for (size_t i = 0; i < sizes.size(); ++i) {
          args.tensors.push_back(
              {in_place ? outputs[i].data() : inputs[i].data(),
               outputs[i].data(), static_cast<int64_t>(sizes[i])});
        }
        const Status status = collective(rank).Broadcast(args);
        EXPECT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(outputs, contents) << "on rank " << rank;
      });
    }
  }
}

// Uneven blocks, empty ones among them, for every dtype and op.
TEST_P(CollectiveConformance, ReducescatterOfUnevenBlocks) {
  auto test = [&](auto sample, DType dtype) {
    using T = decltype(sample);
    std::mt19937_64 random(tag_);
    for (ReduceOp op : conformance::kOps) {
      for (int round = 0; round < 4; ++round) {
        std::vector<int64_t> counts(size_);
        for (int64_t& count : counts) {
          count = random() % 3 == 0 ? 0 : random() % 500;
        }
        int64_t total = 0;
        for (int64_t count : counts) total += count;
        auto values = conformance::ExactValues<T>(size_, total, tag_);
        const auto expected = conformance::ReduceExactly(values, op);
        const AllreduceArgs like = Args(dtype, op);
        RunRanks(size_, [&](int rank) {
          std::vector<T> output(counts[rank]);
          ReducescatterArgs args;
          args.tag = like.tag;
          args.input = values[rank].data();
          args.output = output.data();
          args.count_per_rank = counts;
          args.dtype = dtype;
          args.op = op;
          args.divisor = size_;
          const Status status = collective(rank).Reducescatter(args);
          EXPECT_TRUE(status.ok()) << status.ToString();
          int64_t begin = 0;
          for (int r = 0; r < rank; ++r) begin += counts[r];
          const std::vector<T> block(expected.begin() + begin,
                                     expected.begin() + begin + counts[rank]);
          EXPECT_EQ(conformance::Bytes(output), conformance::Bytes(block))
              << DTypeName(dtype) << " " << ReduceOpName(op) << " on rank "
              << rank;
        });
        if (HasFailure()) return;
      }
    }
  };
  conformance::ForEachInteger(test);
  conformance::ForEachFloat(test);
}

TEST_P(CollectiveConformance, AlltoallOfUnevenBlocks) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<size_t> bytes(size_ * size_);
    for (size_t& count : bytes) {
      count = random() % 3 == 0 ? 0 : random() % 1500;
      if (round == 0) count = 0;
    }
    // blocks[from][to].
    std::vector<std::vector<std::string>> blocks(size_);
    for (int from = 0; from < size_; ++from) {
      for (int to = 0; to < size_; ++to) {
        std::string block;
        for (size_t i = 0; i < bytes[from * size_ + to]; ++i) {
          block += static_cast<char>(random());
        }
        blocks[from].push_back(block);
      }
    }
    const uint64_t tag = NextTag();
    RunRanks(size_, [&](int rank) {
      std::string input;
      std::string expected;
      for (int other = 0; other < size_; ++other) {
        input += blocks[rank][other];
        expected += blocks[other][rank];
      }
      std::string output(expected.size(), '?');
      AlltoallArgs args;
      args.tag = tag;
      args.input = input.data();
      args.output = output.data();
      args.size = size_;
      args.bytes = [&](int from, int to) { return bytes[from * size_ + to]; };
      const Status status = collective(rank).Alltoall(args);
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(output, expected) << "on rank " << rank;
    });
  }
}

// No rank waits for another between collectives; all kinds, back to back.
TEST_P(CollectiveConformance, ManyCollectivesBackToBack) {
  RunRanks(size_, [&](int rank) {
    std::mt19937_64 random(42);  // the same choices on all ranks
    for (uint64_t tag = 1; tag <= 200; ++tag) {
      const size_t count = random() % 300;
      const int kind = static_cast<int>(random() % 5);
      if (kind == 0) {
        std::vector<char> input(count * size_, static_cast<char>(rank));
        std::vector<char> output(count * size_, -1);
        AlltoallArgs args;
        args.tag = tag;
        args.input = input.data();
        args.output = output.data();
        args.size = size_;
        args.bytes = [count](int, int) { return count; };
        const Status status = collective(rank).Alltoall(args);
        ASSERT_TRUE(status.ok()) << status.ToString();
        for (size_t i = 0; i < output.size(); ++i) {
          ASSERT_EQ(output[i], static_cast<char>(i / count));
        }
      } else if (kind == 1) {
        std::vector<int32_t> input(count * size_, rank + 1);
        std::vector<int32_t> output(count, -1);
        ReducescatterArgs args;
        args.tag = tag;
        args.dtype = DType::kInt32;
        args.input = input.data();
        args.output = output.data();
        args.count_per_rank.assign(size_, count);
        ASSERT_TRUE(collective(rank).Reducescatter(args).ok());
        ASSERT_EQ(output, std::vector<int32_t>(count, size_ * (size_ + 1) / 2));
      } else if (kind == 2) {
        std::string input(count, static_cast<char>('a' + rank));
        std::string output(count * size_, '?');
        AllgatherArgs args;
        args.tag = tag;
        args.input = input.data();
        args.output = output.data();
        args.bytes_per_rank.assign(size_, count);
        ASSERT_TRUE(collective(rank).Allgather(args).ok());
        for (size_t i = 0; i < output.size(); ++i) {
          ASSERT_EQ(output[i], static_cast<char>('a' + i / count));
        }
      } else if (kind == 3) {
        std::vector<int32_t> values(count, rank + 1);
        AllreduceArgs args;
        args.tag = tag;
        args.dtype = DType::kInt32;
        args.tensors.push_back(
            {values.data(), values.data(), static_cast<int64_t>(count)});
        const Status status = collective(rank).Allreduce(args);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(values, std::vector<int32_t>(count, size_ * (size_ + 1) / 2));
      } else {
        const int root = static_cast<int>(random() % size_);
        std::string content(count, rank == root ? 'r' : '?');
        BroadcastArgs args;
        args.tag = tag;
        args.root = root;
        args.tensors.push_back(
            {content.data(), content.data(), static_cast<int64_t>(count)});
        ASSERT_TRUE(collective(rank).Broadcast(args).ok());
        ASSERT_EQ(content, std::string(count, 'r'));
      }
    }
  });
}

// Between two calls, on all ranks: no bit of a sum depends on what is tuned,
// nor does a value beyond its range do any harm.
TEST_P(CollectiveConformance, WhatIsTunedChangesNoBit) {
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  const std::vector<TunableRange> ranges = collective(0).Tunables();
  std::vector<int64_t> counts = Counts();
  counts.push_back(1600);  // even: compressed
  for (const int64_t count : counts) {
    const Compression compression =
        count % 2 == 0 ? Compression::kFloat16 : Compression::kNone;
    conformance::PerRank<float> values(size_, std::vector<float>(count));
    for (auto& of_rank : values) {
      for (float& value : of_rank) value = normal(random);
    }
    const auto sums = [&] {
      AllreduceArgs args = Args(DType::kFloat32, ReduceOp::kSum);
      args.compression = compression;
      return Allreduce(values, args);
    };
    const auto expected = sums();
    for (const TunableRange& range : ranges) {
      EXPECT_GE(range.value, range.low) << TunableName(range.tunable);
      EXPECT_LE(range.value, range.high) << TunableName(range.tunable);
      const int64_t span = range.high - range.low + 1;
      for (const int64_t value :
           {range.low, range.high, int64_t{0}, kMaxTunedValue,
            range.low + static_cast<int64_t>(random() % span), range.value}) {
        for (int rank = 0; rank < size_; ++rank) {
          collective(rank).Tune(range.tunable, value);
        }
        const std::string what = std::string(TunableName(range.tunable)) +
                                 " = " + std::to_string(value);
        ExpectEverywhere(sums(), expected.front(), what);
        for (const TunableRange& now : collective(size_ - 1).Tunables()) {
          if (now.tunable != range.tunable || value != range.high) continue;
          EXPECT_EQ(now.value, range.high) << what;
        }
        if (HasFailure()) return;
      }
    }
  }
}

// What a backend has not changes nothing.
TEST_P(CollectiveConformance, OnlyWhatIsThereIsTuned) {
  Collective& one = *members_[0].collective;
  const auto values = [&one] {
    std::vector<int64_t> all;
    for (const TunableRange& range : one.Tunables()) {
      all.push_back(range.value);
    }
    return all;
  };
  const std::vector<int64_t> before = values();
  for (int tunable = 0; tunable < kNumTunables; ++tunable) {
    bool has = false;
    for (const TunableRange& range : one.Tunables()) {
      has = has || range.tunable == static_cast<Tunable>(tunable);
    }
    if (!has) one.Tune(static_cast<Tunable>(tunable), 64);
  }
  EXPECT_EQ(values(), before);
}

// Fault: the last rank is gone. Its neighbours (the other ranks do not take
// part) get kUnavailable with its rank in the text, and get it again from every
// later call.
TEST_P(CollectiveConformance, ALostPeerIsNamedEverAfter) {
  if (size_ == 1) GTEST_SKIP() << "takes two ranks";
  const int lost = size_ - 1;
  const std::vector<int> hearers = Neighbours();
  members_[lost] = CollectiveMember();
  RunRanks(size_, [&](int rank) {
    if (std::count(hearers.begin(), hearers.end(), rank) == 0) return;
    std::vector<float> values(5000, 1.0f);
    AllreduceArgs args;
    args.tag = 1;
    args.tensors.push_back({values.data(), values.data(), 5000});
    const Status status = collective(rank).Allreduce(args);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_NE(status.message().find("rank " + std::to_string(lost)),
              std::string::npos)
        << status.ToString();
    EXPECT_EQ(collective(rank).Allreduce(args), status);
    EXPECT_EQ(collective(rank).Broadcast(BroadcastArgs()), status);
  });
}

// Fault: the ranks run different collectives.
TEST_P(CollectiveConformance, DifferentTagsAreAnError) {
  if (size_ == 1) GTEST_SKIP() << "takes two ranks";
  RunRanks(size_, [&](int rank) {
    std::vector<float> values(10, 1.0f);
    AllreduceArgs args;
    args.tag = 100 + rank;
    args.tensors.push_back({values.data(), values.data(), 10});
    EXPECT_EQ(collective(rank).Allreduce(args).code(), StatusCode::kInternal);
  });
}

// The last rank alone: one that is aborted may free the others before their
// own turn, and they name it.
TEST_P(CollectiveConformance, AbortUnblocksAndItsCauseIsKept) {
  const Status cause = AbortedError("the test says so");
  RunRanks(size_, [&](int rank) {
    const int last = size_ - 1;
    std::vector<float> values(5000, 1.0f);
    AllreduceArgs args;
    args.tag = 1;
    args.tensors.push_back({values.data(), values.data(), 5000});
    if (rank == 0) collective(last).Abort(cause);
    if (rank != last) return;
    EXPECT_EQ(collective(last).Allreduce(args), cause);
    collective(last).Abort(InternalError("too late to be the cause"));
    EXPECT_EQ(collective(last).Allreduce(args), cause);
  });
}

TEST_P(CollectiveConformance, AbortOfAllUnblocksAll) {
  const Status cause = AbortedError("the test says so");
  RunRanks(size_, [&](int rank) {
    std::vector<float> values(5000, 1.0f);
    AllreduceArgs args;
    args.tag = 1;
    args.tensors.push_back({values.data(), values.data(), 5000});
    if (rank == 0) {  // the others would wait for it for ever
      for (int r = 0; r < size_; ++r) collective(r).Abort(cause);
    }
    const Status status = collective(rank).Allreduce(args);
    EXPECT_TRUE(status == cause || status.code() == StatusCode::kUnavailable)
        << status.ToString();
    EXPECT_EQ(collective(rank).Allreduce(args), status);
  });
}

}  // namespace keras_ring
