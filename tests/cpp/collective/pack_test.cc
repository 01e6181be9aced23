#include "csrc/collective/kernels/pack.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "csrc/base/float16.h"

namespace keras_ring {
namespace {

TEST(PackTest, WideDTypes) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    if (!IsReducible(dtype)) continue;
    for (int o = 0; o < kNumElementwiseOps; ++o) {
      const ReduceOp op = static_cast<ReduceOp>(o);
      DType expected = dtype;
      if (IsFloating(dtype) && DTypeSize(dtype) == 2) {
        expected = DType::kFloat32;
      }
      if (IsInteger(dtype) && op == ReduceOp::kAverage) {
        expected = DType::kInt64;
      }
      const AccumulatorFormat& format = *FindWideFormat(dtype, op);
      EXPECT_EQ(format.dtype, expected) << DTypeName(dtype);
      EXPECT_EQ(format.element_size, DTypeSize(expected));
      EXPECT_EQ(format.value_size, DTypeSize(dtype));
      EXPECT_EQ(format.converts, expected != dtype);
    }
  }
}

TEST(PackTest, ScalesInTheWideDType) {
  const AccumulatorFormat& format =
      *FindWideFormat(DType::kFloat16, ReduceOp::kSum);
  const std::vector<Float16> values = {ToFloat16(1.5f), ToFloat16(-32768.0f)};
  std::vector<float> wide(2);
  format.pack(wide.data(), values.data(), 2, 4.0);
  // The latter would be infinite as float16.
  EXPECT_EQ(wide, (std::vector<float>{6.0f, -131072.0f}));
}

TEST(PackTest, InPlaceAndApart) {
  const AccumulatorFormat& format =
      *FindWideFormat(DType::kFloat32, ReduceOp::kSum);
  for (double scale : {1.0, 0.5}) {
    std::vector<float> values(37);
    std::vector<float> expected(37);
    for (int i = 0; i < 37; ++i) {
      values[i] = i;
      expected[i] = i * scale;
    }
    std::vector<float> apart(37);
    format.pack(apart.data(), values.data(), 37, scale);
    EXPECT_EQ(apart, expected);
    format.pack(values.data(), values.data(), 37, scale);
    EXPECT_EQ(values, expected);
  }
}

TEST(PackTest, UnpackRoundsToNearestEven) {
  const AccumulatorFormat& format =
      *FindWideFormat(DType::kBfloat16, ReduceOp::kSum);
  // A bfloat16 has 8 significant bits: 257 and 259 lie in the middle.
  const std::vector<float> wide = {257.0f, 259.0f, 256.5f, 3.4e38f};
  std::vector<Bfloat16> values(4);
  format.unpack(values.data(), wide.data(), 4);
  EXPECT_EQ(ToFloat(values[0]), 256.0f);
  EXPECT_EQ(ToFloat(values[1]), 260.0f);
  EXPECT_EQ(ToFloat(values[2]), 256.0f);
  EXPECT_EQ(ToFloat(values[3]), std::numeric_limits<float>::infinity());
}

TEST(PackTest, IntegerMeansRoundDown) {
  const AccumulatorFormat& format =
      *FindWideFormat(DType::kInt8, ReduceOp::kAverage);
  std::vector<int64_t> wide = {7, -7, 6, -6, 0, -1, 127 * 3, -128 * 3};
  format.finish(wide.data(), wide.size(), Finish{3, 1.0});
  EXPECT_EQ(wide, (std::vector<int64_t>{2, -3, 2, -2, 0, -1, 127, -128}));
}

// Multiplying with 1/49, which is not a float, would give 1 - 2^-24.
TEST(PackTest, MeansAreDivisions) {
  const AccumulatorFormat& format =
      *FindWideFormat(DType::kFloat32, ReduceOp::kSum);
  std::vector<float> sums;
  for (int n = 1; n < 1000; ++n) {
    sums.assign(5, static_cast<float>(n) * 3.0f);
    format.finish(sums.data(), 5, Finish{n, 1.0});
    ASSERT_EQ(sums, std::vector<float>(5, 3.0f)) << n;
  }
}

TEST(PackTest, FinishScalesAfterDividing) {
  const AccumulatorFormat& format =
      *FindWideFormat(DType::kFloat64, ReduceOp::kSum);
  std::vector<double> sums = {7.0};
  format.finish(sums.data(), 1, Finish{3, 0.1});
  EXPECT_EQ(sums[0], 7.0 / 3.0 * 0.1);
  format.finish(sums.data(), 1, Finish{1, 10.0});
  EXPECT_EQ(sums[0], 7.0 / 3.0 * 0.1 * 10.0);
  const double before = sums[0];
  format.finish(sums.data(), 1, Finish{});
  EXPECT_EQ(sums[0], before);
}

TEST(PackTest, NoElementsTouchNothing) {
  for (DType dtype : {DType::kFloat16, DType::kFloat32, DType::kInt8}) {
    const AccumulatorFormat& format =
        *FindWideFormat(dtype, ReduceOp::kAverage);
    format.pack(nullptr, nullptr, 0, 1.0);
    format.unpack(nullptr, nullptr, 0);
    format.finish(nullptr, 0, Finish{2, 1.0});
  }
}

}  // namespace
}  // namespace keras_ring
