#include "csrc/base/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "csrc/base/reduce_op.h"

namespace keras_ring {
namespace {

TEST(DType, EachHasASizeAndAName) {
  std::set<std::string> names;
  for (int i = 0; i < kNumDTypes; ++i) {
    ASSERT_TRUE(IsDType(i));
    DType dtype = static_cast<DType>(i);
    EXPECT_GT(DTypeSize(dtype), 0u);
    names.insert(DTypeName(dtype));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumDTypes));
  EXPECT_FALSE(IsDType(kNumDTypes));
}

TEST(DType, NamesAndSizesAreNumPys) {
  EXPECT_STREQ(DTypeName(DType::kFloat32), "float32");
  EXPECT_STREQ(DTypeName(DType::kBfloat16), "bfloat16");
  EXPECT_STREQ(DTypeName(DType::kBool), "bool");
  EXPECT_EQ(DTypeSize(DType::kBfloat16), 2u);
  EXPECT_EQ(DTypeSize(DType::kFloat64), 8u);
  EXPECT_EQ(DTypeSize(DType::kComplex128), 16u);
}

// They travel on the wire between builds.
TEST(DType, NumbersDoNotChange) {
  EXPECT_EQ(static_cast<int>(DType::kUint8), 0);
  EXPECT_EQ(static_cast<int>(DType::kFloat16), 6);
  EXPECT_EQ(static_cast<int>(DType::kFloat32), 8);
  EXPECT_EQ(static_cast<int>(DType::kComplex128), 12);
  EXPECT_EQ(static_cast<int>(ReduceOp::kAverage), 0);
  EXPECT_EQ(static_cast<int>(ReduceOp::kProduct), 4);
  EXPECT_EQ(static_cast<int>(ReduceOp::kAdasum), 5);
}

TEST(DType, BoolAndComplexAreNotReduced) {
  EXPECT_FALSE(IsReducible(DType::kBool));
  EXPECT_FALSE(IsReducible(DType::kComplex64));
  EXPECT_TRUE(IsReducible(DType::kInt8));
  EXPECT_TRUE(IsReducible(DType::kBfloat16));
  EXPECT_FALSE(IsFloating(DType::kInt64));
  EXPECT_FALSE(IsInteger(DType::kFloat16));
}

TEST(ReduceOp, Names) {
  EXPECT_STREQ(ReduceOpName(ReduceOp::kAverage), "Average");
  EXPECT_STREQ(ReduceOpName(ReduceOp::kProduct), "Product");
  EXPECT_STREQ(ReduceOpName(ReduceOp::kAdasum), "Adasum");
  EXPECT_FALSE(IsReduceOp(kNumReduceOps));
}

}  // namespace
}  // namespace keras_ring
