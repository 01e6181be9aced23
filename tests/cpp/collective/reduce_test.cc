#include "csrc/collective/kernels/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "csrc/collective/kernels/pack.h"

namespace keras_ring {
namespace {

template <typename T>
std::vector<T> Reduce(DType dtype, ReduceOp op, std::vector<T> a,
                      const std::vector<T>& b) {
  FindReduceKernel(dtype, op)(a.data(), b.data(), a.size());
  return a;
}

TEST(ReduceTest, EveryWideDTypeHasEveryKernel) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    for (int o = 0; o < kNumElementwiseOps; ++o) {
      const ReduceOp op = static_cast<ReduceOp>(o);
      const AccumulatorFormat* format = FindWideFormat(dtype, op);
      ASSERT_EQ(format != nullptr, IsReducible(dtype)) << DTypeName(dtype);
      if (format == nullptr) continue;
      EXPECT_NE(FindReduceKernel(format->dtype, op), nullptr)
          << DTypeName(dtype);
    }
  }
}

TEST(ReduceTest, WhatIsOnlyMovedHasNone) {
  for (DType dtype : {DType::kBool, DType::kComplex64, DType::kComplex128,
                      DType::kFloat16, DType::kBfloat16}) {
    EXPECT_EQ(FindReduceKernel(dtype, ReduceOp::kSum), nullptr);
  }
}

TEST(ReduceTest, NarrowSumsAndProductsWrap) {
  EXPECT_EQ(Reduce<uint8_t>(DType::kUint8, ReduceOp::kSum, {200, 1}, {100, 2}),
            (std::vector<uint8_t>{44, 3}));
  EXPECT_EQ(Reduce<int8_t>(DType::kInt8, ReduceOp::kSum, {127, -128}, {1, -1}),
            (std::vector<int8_t>{-128, 127}));
  EXPECT_EQ(
      Reduce<int8_t>(DType::kInt8, ReduceOp::kProduct, {100, -128}, {3, -1}),
      (std::vector<int8_t>{44, -128}));
  // The product overflows a signed int.
  EXPECT_EQ(
      Reduce<uint16_t>(DType::kUint16, ReduceOp::kProduct, {65535}, {65535}),
      (std::vector<uint16_t>{1}));
}

TEST(ReduceTest, WideSumsAndProductsWrap) {
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Reduce<int32_t>(DType::kInt32, ReduceOp::kSum, {kMax32}, {1}),
            (std::vector<int32_t>{std::numeric_limits<int32_t>::min()}));
  EXPECT_EQ(Reduce<int64_t>(DType::kInt64, ReduceOp::kSum, {kMax64}, {1}),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::min()}));
  EXPECT_EQ(Reduce<int64_t>(DType::kInt64, ReduceOp::kProduct, {kMax64}, {3}),
            (std::vector<int64_t>{kMax64 - 2}));
}

TEST(ReduceTest, ExtremaAreSignedWhereTheTypeIs) {
  EXPECT_EQ(Reduce<int8_t>(DType::kInt8, ReduceOp::kMin, {-1, 5}, {1, 4}),
            (std::vector<int8_t>{-1, 4}));
  EXPECT_EQ(Reduce<uint8_t>(DType::kUint8, ReduceOp::kMax, {255, 5}, {1, 9}),
            (std::vector<uint8_t>{255, 9}));
}

// In either place and at any index: vectorised loops have scalar tails.
template <typename T>
void ExpectNanWins(DType dtype) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin,
                      ReduceOp::kMax, ReduceOp::kProduct}) {
    for (size_t at = 0; at < 19; ++at) {
      std::vector<T> numbers(19, T{1});
      std::vector<T> with_nan = numbers;
      with_nan[at] = nan;
      const auto left = Reduce(dtype, op, with_nan, numbers);
      const auto right = Reduce(dtype, op, numbers, with_nan);
      for (size_t i = 0; i < 19; ++i) {
        EXPECT_EQ(std::isnan(left[i]), i == at) << ReduceOpName(op) << i;
        EXPECT_EQ(std::isnan(right[i]), i == at) << ReduceOpName(op) << i;
      }
    }
  }
}

TEST(ReduceTest, NanWins) {
  ExpectNanWins<float>(DType::kFloat32);
  ExpectNanWins<double>(DType::kFloat64);
}

TEST(ReduceTest, NoElementsTouchNothing) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin}) {
    FindReduceKernel(DType::kFloat32, op)(nullptr, nullptr, 0);
  }
}

}  // namespace
}  // namespace keras_ring
