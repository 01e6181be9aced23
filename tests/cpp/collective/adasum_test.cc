#include "csrc/collective/adasum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "csrc/collective/kernels/kernels.h"
#include "csrc/testing/fake_collective.h"

namespace keras_ring {
namespace {

template <typename T>
std::vector<T> RandomValues(int64_t count, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0.0, 1.0);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

// Every processor has the same bits.
template <typename T>
void ExpectEqualLevels(DType dtype) {
  std::mt19937_64 random(1);
  for (int64_t count : {0, 1, 15, 16, 17, 1000, 4099}) {
    const std::vector<T> a = RandomValues<T>(count, random);
    const std::vector<T> b = RandomValues<T>(count, random);
    double expected[3] = {1, 2, 3};
    std::vector<T> sum = a;
    const PairKernels& baseline = FindPairKernels(dtype, CpuLevel::kBaseline);
    baseline.multiply(a.data(), b.data(), count, expected);
    baseline.combine(sum.data(), b.data(), count, 0.3, -1.7);
    double exact[3] = {1, 2, 3};
    for (int64_t i = 0; i < count; ++i) {
      exact[0] += static_cast<double>(a[i]) * b[i];
      exact[1] += static_cast<double>(a[i]) * a[i];
      exact[2] += static_cast<double>(b[i]) * b[i];
      ASSERT_EQ(sum[i],
                static_cast<T>(0.3 * double{a[i]} + -1.7 * double{b[i]}));
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(expected[i], exact[i], 1e-13 * (count + 3));
    }
    for (int level = 1; level <= static_cast<int>(DetectCpuLevel()); ++level) {
      const PairKernels& kernels =
          FindPairKernels(dtype, static_cast<CpuLevel>(level));
      double products[3] = {1, 2, 3};
      kernels.multiply(a.data(), b.data(), count, products);
      EXPECT_EQ(std::memcmp(products, expected, sizeof(products)), 0)
          << count << " at level " << level;
      std::vector<T> combined = a;
      kernels.combine(combined.data(), b.data(), count, 0.3, -1.7);
      EXPECT_EQ(combined, sum) << count << " at level " << level;
    }
  }
}

TEST(PairKernelsTest, GiveTheSameBitsOnEveryProcessor) {
  ExpectEqualLevels<float>(DType::kFloat32);
  ExpectEqualLevels<double>(DType::kFloat64);
}

TEST(AdasumTest, RefusesIntegers) {
  FakeCollective collective;
  AllreduceArgs args;
  args.dtype = DType::kInt32;
  args.op = ReduceOp::kAdasum;
  const Status status = Adasum().Allreduce(args, 0, 1, collective);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("no Adasum of int32"), std::string::npos);
}

// Tensors that are large together go one round after the other.
TEST(AdasumTest, BoundsTheMemoryOfSmallTensors) {
  FakeCollective collective;
  const int64_t count = Adasum::kRoundBytes / sizeof(float) / 2;
  std::vector<float> values(count, 1.0f);
  AllreduceArgs args;
  args.op = ReduceOp::kAdasum;
  for (int i = 0; i < 5; ++i) {
    args.tensors.push_back({values.data(), values.data(), count});
  }
  ASSERT_TRUE(Adasum().Allreduce(args, 0, 1, collective).ok());
  size_t rounds = 0;
  for (const FakeCollective::Call& call : collective.calls()) {
    if (call.kind != FakeCollective::Kind::kAlltoall) continue;
    ++rounds;
    EXPECT_LE(call.alltoall_bytes.front(), size_t{Adasum::kRoundBytes});
  }
  EXPECT_EQ(rounds, 3u);
  EXPECT_EQ(values.front(), 1.0f);
}

// So that the bits do not depend on what shares the bucket.
TEST(AdasumTest, EachTensorMayHaveARoundOfItsOwn) {
  FakeCollective collective;
  std::vector<float> values(100, 1.0f);
  AllreduceArgs args;
  args.op = ReduceOp::kAdasum;
  for (int64_t count : {1, 7, 60}) {
    args.tensors.push_back({values.data(), values.data(), count});
  }
  ASSERT_TRUE(Adasum(/*round_bytes=*/0).Allreduce(args, 0, 1, collective).ok());
  std::vector<size_t> rounds;
  for (const FakeCollective::Call& call : collective.calls()) {
    if (call.kind != FakeCollective::Kind::kAlltoall) continue;
    rounds.push_back(call.alltoall_bytes.front());
  }
  EXPECT_EQ(rounds, std::vector<size_t>({4, 28, 240}));
}

}  // namespace
}  // namespace keras_ring
