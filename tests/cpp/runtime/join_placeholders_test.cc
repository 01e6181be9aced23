#include "csrc/runtime/join_placeholders.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "csrc/base/float16.h"

namespace keras_ring {
namespace {

std::shared_ptr<const Response> AgreedOn(RequestKind kind, ReduceOp op,
                                         std::vector<TensorSpec> tensors) {
  auto agreed = std::make_shared<Response>();
  agreed->request.kind = kind;
  agreed->request.op = op;
  agreed->request.tensors = std::move(tensors);
  return agreed;
}

// The value that a reduction of so many elements is given.
template <typename T>
T ValueFor(ReduceOp op, DType dtype) {
  ExecuteCommand command;
  command.items = {
      AgreedOn(RequestKind::kAllreduce, op, {TensorSpec{dtype, {3, 5}}})};
  JoinPlaceholders placeholders;
  std::vector<TensorEntry> entries;
  EXPECT_TRUE(placeholders.Make(command, TimePoint(), nullptr, entries).ok());
  EXPECT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].inputs.front(), entries[0].outputs.front());
  const T* values = static_cast<const T*>(entries[0].inputs.front());
  for (int i = 1; i < 15; ++i) {
    EXPECT_EQ(std::memcmp(&values[i], &values[0], sizeof(T)), 0);
  }
  const T value = values[0];
  entries[0].completion.Fire(OkStatus());
  return value;
}

template <typename T>
void ExpectNeutralIntegers(DType dtype) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage}) {
    EXPECT_EQ(ValueFor<T>(op, dtype), T{0});
  }
  EXPECT_EQ(ValueFor<T>(ReduceOp::kProduct, dtype), T{1});
  EXPECT_EQ(ValueFor<T>(ReduceOp::kMin, dtype), std::numeric_limits<T>::max());
  EXPECT_EQ(ValueFor<T>(ReduceOp::kMax, dtype),
            std::numeric_limits<T>::lowest());
}

template <typename T, typename ToNumber>
void ExpectNeutralFloats(DType dtype, ToNumber number) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kAdasum}) {
    EXPECT_EQ(number(ValueFor<T>(op, dtype)), 0.0);
  }
  EXPECT_EQ(number(ValueFor<T>(ReduceOp::kProduct, dtype)), 1.0);
  EXPECT_EQ(number(ValueFor<T>(ReduceOp::kMin, dtype)), INFINITY);
  EXPECT_EQ(number(ValueFor<T>(ReduceOp::kMax, dtype)), -INFINITY);
}

TEST(JoinPlaceholders, BringWhatChangesNoReduction) {
  ExpectNeutralIntegers<uint8_t>(DType::kUint8);
  ExpectNeutralIntegers<int8_t>(DType::kInt8);
  ExpectNeutralIntegers<uint16_t>(DType::kUint16);
  ExpectNeutralIntegers<int16_t>(DType::kInt16);
  ExpectNeutralIntegers<int32_t>(DType::kInt32);
  ExpectNeutralIntegers<int64_t>(DType::kInt64);
  auto widen = [](auto value) { return static_cast<double>(ToFloat(value)); };
  ExpectNeutralFloats<Float16>(DType::kFloat16, widen);
  ExpectNeutralFloats<Bfloat16>(DType::kBfloat16, widen);
  auto same = [](auto value) { return static_cast<double>(value); };
  ExpectNeutralFloats<float>(DType::kFloat32, same);
  ExpectNeutralFloats<double>(DType::kFloat64, same);
}

TEST(JoinPlaceholders, HaveMemoryForWhatNobodyReads) {
  ExecuteCommand command;
  command.items = {
      AgreedOn(RequestKind::kAlltoall, ReduceOp::kSum,
               {TensorSpec{DType::kFloat64, {0, 2}}}),
      AgreedOn(RequestKind::kBroadcast, ReduceOp::kSum,
               {TensorSpec{DType::kBool, {7}}, TensorSpec{DType::kBool, {0}}}),
      AgreedOn(RequestKind::kBarrier, ReduceOp::kSum, {})};
  JoinPlaceholders placeholders;
  std::vector<TensorEntry> entries;
  ASSERT_TRUE(placeholders.Make(command, TimePoint(), nullptr, entries).ok());
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_TRUE(entries[0].outputs.empty());
  Result<void*> rows = entries[0].allocate(0, 3);
  ASSERT_TRUE(rows.ok());
  std::memset(*rows, 1, 3 * 2 * sizeof(double));
  Result<void*> splits = entries[0].allocate(1, 4);
  ASSERT_TRUE(splits.ok());
  std::memset(*splits, 1, 4 * sizeof(int64_t));
  ASSERT_EQ(entries[1].outputs.size(), 2u);
  std::memset(entries[1].outputs.front(), 1, 7);
  EXPECT_TRUE(entries[2].inputs.empty());
  for (TensorEntry& entry : entries) entry.completion.Fire(OkStatus());
}

}  // namespace
}  // namespace keras_ring
