#include "csrc/collective/net/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace keras_ring {
namespace {

std::vector<TensorSpan> Tensors(const std::vector<int64_t>& counts) {
  std::vector<TensorSpan> tensors;
  for (int64_t count : counts) tensors.push_back({nullptr, nullptr, count});
  return tensors;
}

const AccumulatorFormat& Float32() {
  return *FindWideFormat(DType::kFloat32, ReduceOp::kSum);
}
const AccumulatorFormat& Float16AsFloat32() {
  return *FindWideFormat(DType::kFloat16, ReduceOp::kSum);
}

constexpr RoundLimits kLimits{/*fusion_buffer_bytes=*/400,
                              /*direct_bytes=*/200};

TEST(RoundsTest, SmallTensorsShareARound) {
  const auto rounds = PlanRounds(Tensors({10, 20, 30}), Float32(), kLimits);
  ASSERT_EQ(rounds.size(), 1u);
  EXPECT_EQ(rounds[0].pieces.size(), 3u);
  EXPECT_EQ(rounds[0].count, 60);
  EXPECT_FALSE(rounds[0].direct);
}

TEST(RoundsTest, ALoneTensorIsDirect) {
  for (int64_t count : {1, 10, 1000}) {
    const auto rounds = PlanRounds(Tensors({count}), Float32(), kLimits);
    ASSERT_EQ(rounds.size(), 1u);
    EXPECT_EQ(rounds[0].count, count);
    EXPECT_TRUE(rounds[0].direct);
  }
}

TEST(RoundsTest, ALargeTensorIsDirectAndTheOthersStillShare) {
  const auto rounds = PlanRounds(Tensors({10, 50, 20}), Float32(), kLimits);
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_TRUE(rounds[0].direct);
  EXPECT_EQ(rounds[0].pieces[0].tensor, 1u);
  EXPECT_FALSE(rounds[1].direct);
  EXPECT_EQ(rounds[1].pieces.size(), 2u);
}

TEST(RoundsTest, WhatConvertsIsNeverDirect) {
  for (int64_t count : {1, 1000}) {
    for (const Round& round :
         PlanRounds(Tensors({count}), Float16AsFloat32(), kLimits)) {
      EXPECT_FALSE(round.direct);
      // Each with its float32 beside it.
      EXPECT_LE(round.count, 400 / 6);
    }
  }
}

TEST(RoundsTest, NothingGivesNoRounds) {
  EXPECT_TRUE(PlanRounds({}, Float32(), kLimits).empty());
  EXPECT_TRUE(PlanRounds(Tensors({0, 0}), Float32(), kLimits).empty());
}

// Whatever the bucket: each element is in exactly one round, in order within
// its tensor, and packed rounds fit the buffer.
TEST(RoundsTest, EveryElementOnce) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<int64_t> counts(random() % 20);
    for (int64_t& count : counts) count = random() % 90;
    const AccumulatorFormat& format = i % 2 ? Float32() : Float16AsFloat32();
    const RoundLimits limits{random() % 500, random() % 300};
    const int64_t fits =
        std::max<int64_t>(1, limits.fusion_buffer_bytes / format.packed_size());
    std::vector<int64_t> seen(counts.size());
    for (const Round& round : PlanRounds(Tensors(counts), format, limits)) {
      int64_t count = 0;
      for (const Piece& piece : round.pieces) {
        EXPECT_EQ(piece.begin, seen[piece.tensor]);
        EXPECT_GT(piece.count, 0);
        seen[piece.tensor] += piece.count;
        count += piece.count;
      }
      EXPECT_EQ(round.count, count);
      EXPECT_TRUE(round.direct || round.count <= fits);
    }
    EXPECT_EQ(seen, counts);
  }
}

}  // namespace
}  // namespace keras_ring
