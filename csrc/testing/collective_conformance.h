// The suite that every Collective passes, whatever moves its bytes.
//
// A test file says how to make a group and instantiates the suite:
//
//   INSTANTIATE_TEST_SUITE_P(
//       Tcp, CollectiveConformance,
//       testing::Combine(testing::Values(CollectiveFactory{"tcp", MakeTcp}),
//                        testing::ValuesIn(kConformanceSizes)),
//       CollectiveConformance::Name);
//
// The tests themselves are in collective_conformance.cc, compiled once and
// linked into each of those.
//
// The factory should choose segments and buffers so small (kTestSegmentBytes,
// kTestBufferBytes) that the sizes used here are many segments and rounds.
#ifndef KERAS_RING_TESTING_COLLECTIVE_CONFORMANCE_H_
#define KERAS_RING_TESTING_COLLECTIVE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "csrc/base/float16.h"
#include "csrc/collective/collective.h"
#include "csrc/testing/collective_calls.h"
#include "csrc/testing/run_ranks.h"

namespace keras_ring {

inline constexpr int kConformanceSizes[] = {1, 2, 3, 4, 7};
inline constexpr size_t kTestSegmentBytes = 48;
inline constexpr size_t kTestBufferBytes = 1024;
inline constexpr size_t kTestDirectBytes = 400;

// One rank's collective, and what it stands on. Destroying a member is a lost
// peer to the others.
struct CollectiveMember {
  std::shared_ptr<void> foundation;
  std::unique_ptr<Collective> collective;
  // Where its tensors are. Null: in host memory.
  std::shared_ptr<DeviceRegion> region = nullptr;
};

// Who is reduced together on one level: ranks, or groups of the level below.
using GroupsOfLevel = std::vector<std::vector<int>>;

struct CollectiveFactory {
  std::string name;
  std::function<std::vector<CollectiveMember>(int size)> make;
  // The levels below the last, on which all is reduced. Null: there are none.
  std::function<std::vector<GroupsOfLevel>(int size)> levels = nullptr;
  // Who hears of it when the last rank goes away; null: its neighbours in a
  // ring.
  std::function<std::vector<int>(int size)> neighbours = nullptr;
  // How often values are rounded to their dtype: once, unless something that is
  // not ours sums them.
  int roundings = 1;
};
inline void PrintTo(const CollectiveFactory& factory, std::ostream* out) {
  *out << factory.name;
}

namespace conformance {

// A value of element type T as double and back; exact for all values that this
// suite uses with T.
template <typename T>
double Widen(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
    return ToFloat(value);
  } else {
    return static_cast<double>(value);
  }
}
template <typename T>
T Narrow(double value) {
  if constexpr (std::is_same_v<T, Float16>) {
    return ToFloat16(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return ToBfloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// `value` as the nearest W, in one step.
template <typename W>
W RoundTo(double value) {
  const int digits = std::is_same_v<W, Float16> ? 11 : 8;
  const int smallest = std::is_same_v<W, Float16> ? -24 : -133;
  const int last_place =
      value == 0 ? 0 : std::max(std::ilogb(value) - digits + 1, smallest);
  return Narrow<W>(
      std::ldexp(std::nearbyint(std::ldexp(value, -last_place)), last_place));
}

// The type in which T is summed, hence whose rounding a result shows.
template <typename T>
using WideType = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Half a unit in the last place of 1, as a float of type T is stored.
template <typename T>
double StorageRounding() {
  if (std::is_same_v<T, Float16>) return std::ldexp(1.0, -11);
  if (std::is_same_v<T, Bfloat16>) return std::ldexp(1.0, -8);
  return std::numeric_limits<WideType<T>>::epsilon() / 2;
}

// Calls f(T(), dtype) for each dtype that is reduced.
template <typename Function>
void ForEachFloat(Function f) {
  f(Float16(), DType::kFloat16);
  f(Bfloat16(), DType::kBfloat16);
  f(float(), DType::kFloat32);
  f(double(), DType::kFloat64);
}
template <typename Function>
void ForEachInteger(Function f) {
  f(uint8_t(), DType::kUint8);
  f(int8_t(), DType::kInt8);
  f(uint16_t(), DType::kUint16);
  f(int16_t(), DType::kInt16);
  f(int32_t(), DType::kInt32);
  f(int64_t(), DType::kInt64);
}

inline constexpr ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum,
                                    ReduceOp::kMin, ReduceOp::kMax,
                                    ReduceOp::kProduct};

// values[rank][i].
template <typename T>
using PerRank = std::vector<std::vector<T>>;

// Uniform bits for integers, so that sums and products wrap; for floats -2,
// -1, 1 or 2, so that all results are exact in any order and any dtype.
template <typename T>
PerRank<T> ExactValues(int size, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  PerRank<T> values(size, std::vector<T>(count));
  for (auto& of_rank : values) {
    for (T& value : of_rank) {
      if constexpr (std::is_integral_v<T>) {
        value = static_cast<T>(random());
      } else {
        const double magnitude = random() % 2 + 1.0;
        value = Narrow<T>(random() % 2 ? magnitude : -magnitude);
      }
    }
  }
  return values;
}

template <typename T>
T ReduceIntegers(const std::vector<T>& values, ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return *std::min_element(values.begin(), values.end());
    case ReduceOp::kMax:
      return *std::max_element(values.begin(), values.end());
    case ReduceOp::kSum:
    case ReduceOp::kProduct: {
      // Truncation to T is reduction modulo 2^k.
      uint64_t result = op == ReduceOp::kSum ? 0 : 1;
      for (T value : values) {
        const uint64_t wide = static_cast<uint64_t>(value);
        result = op == ReduceOp::kSum ? result + wide : result * wide;
      }
      return static_cast<T>(result);
    }
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:  // there is none of integers
      break;
  }
  // The sum wraps in 64 bits only.
  uint64_t wrapped = 0;
  for (T value : values) wrapped += static_cast<uint64_t>(value);
  const int64_t sum = static_cast<int64_t>(wrapped);
  const int64_t n = values.size();
  return static_cast<T>((sum - ((sum % n) + n) % n) / n);
}

template <typename T>
T ReduceExactFloats(const std::vector<T>& values, ReduceOp op) {
  double result = Widen(values.front());
  for (size_t rank = 1; rank < values.size(); ++rank) {
    const double value = Widen(values[rank]);
    if (op == ReduceOp::kMin) result = std::min(result, value);
    if (op == ReduceOp::kMax) result = std::max(result, value);
    if (op == ReduceOp::kProduct) result *= value;
    if (op == ReduceOp::kSum || op == ReduceOp::kAverage) result += value;
  }
  if (op != ReduceOp::kAverage) return Narrow<T>(result);
  using Wide = WideType<T>;
  return Narrow<T>(static_cast<Wide>(result) /
                   static_cast<Wide>(values.size()));
}

template <typename T>
T ReduceExactly(const std::vector<T>& values, ReduceOp op) {
  if constexpr (std::is_integral_v<T>)
    return ReduceIntegers(values, op);
  else
    return ReduceExactFloats(values, op);
}

template <typename T>
std::vector<T> ReduceExactly(const PerRank<T>& values, ReduceOp op) {
  std::vector<T> result(values.front().size());
  for (size_t i = 0; i < result.size(); ++i) {
    std::vector<T> column;
    for (const auto& of_rank : values) column.push_back(of_rank[i]);
    result[i] = ReduceExactly(column, op);
  }
  return result;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

}  // namespace conformance

class CollectiveConformance
    : public testing::TestWithParam<std::tuple<CollectiveFactory, int>> {
 public:
  static std::string Name(const testing::TestParamInfo<ParamType>& info) {
    return std::get<0>(info.param).name + "_" +
           std::to_string(std::get<1>(info.param));
  }

 protected:
  CollectiveConformance()
      : size_(std::get<1>(GetParam())),
        members_(std::get<0>(GetParam()).make(size_)) {}

  CollectiveCalls collective(int rank) {
    const CollectiveMember& member = members_[rank];
    return CollectiveCalls(*member.collective, rank, member.region.get());
  }
  uint64_t NextTag() { return tag_++; }
  // See CollectiveFactory.
  std::vector<GroupsOfLevel> Levels() const {
    const CollectiveFactory& factory = std::get<0>(GetParam());
    return factory.levels ? factory.levels(size_)
                          : std::vector<GroupsOfLevel>();
  }
  int Roundings() const { return std::get<0>(GetParam()).roundings; }
  std::vector<int> Neighbours() const {
    const CollectiveFactory& factory = std::get<0>(GetParam());
    if (factory.neighbours) return factory.neighbours(size_);
    return {0, size_ - 2};
  }

  // How `tensors` of the given values (values[tensor][rank][i]) come out of an
  // allreduce, on every rank.
  template <typename T>
  std::vector<conformance::PerRank<T>> Allreduce(
      const std::vector<conformance::PerRank<T>>& values,
      const AllreduceArgs& args,
      const std::function<bool(int rank, size_t tensor)>& in_place) {
    std::vector<conformance::PerRank<T>> results(
        values.size(), conformance::PerRank<T>(size_));
    RunRanks(size_, [&](int rank) {
      AllreduceArgs own = args;
      conformance::PerRank<T> inputs;
      for (const auto& tensor : values) inputs.push_back(tensor[rank]);
      for (size_t t = 0; t < values.size(); ++t) {
        std::vector<T>& output = results[t][rank];
        if (in_place(rank, t)) {
          output = inputs[t];
          own.tensors.push_back({output.data(), output.data(),
                                 static_cast<int64_t>(output.size())});
        } else {
          output.resize(inputs[t].size());
          own.tensors.push_back({inputs[t].data(), output.data(),
                                 static_cast<int64_t>(output.size())});
        }
      }
      const Status status = collective(rank).Allreduce(own);
      EXPECT_TRUE(status.ok()) << status.ToString();
      for (size_t t = 0; t < values.size(); ++t) {
        if (in_place(rank, t)) continue;
        EXPECT_EQ(conformance::Bytes(inputs[t]),
                  conformance::Bytes(values[t][rank]))
            << "an input was written to";
      }
    });
    return results;
  }

  template <typename T>
  conformance::PerRank<T> Allreduce(const conformance::PerRank<T>& values,
                                    const AllreduceArgs& args,
                                    bool in_place = true) {
    return Allreduce<T>(std::vector<conformance::PerRank<T>>{values}, args,
                        [in_place](int, size_t) { return in_place; })
        .front();
  }

  AllreduceArgs Args(DType dtype, ReduceOp op) {
    AllreduceArgs args;
    args.tag = NextTag();
    args.dtype = dtype;
    args.op = op;
    args.divisor = size_;
    return args;
  }

  std::vector<int64_t> Counts() const {
    return {0, 1, size_ - 1, size_, size_ + 1, 37, 1501};
  }

  template <typename T>
  void ExpectEverywhere(const conformance::PerRank<T>& results,
                        const std::vector<T>& expected,
                        const std::string& what) {
    for (int rank = 0; rank < size_; ++rank) {
      EXPECT_EQ(conformance::Bytes(results[rank]), conformance::Bytes(expected))
          << what << " on rank " << rank;
    }
  }

  const int size_;
  std::vector<CollectiveMember> members_;
  uint64_t tag_ = 1;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_COLLECTIVE_CONFORMANCE_H_
