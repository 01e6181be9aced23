#include "csrc/collective/net/levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(LevelsTest, OneGroupWhereAllCanTalkToEachOther) {
  for (int size : {1, 2, 3, 32}) {
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<Group> levels = PlanLevels(rank, size, 32);
      ASSERT_THAT(levels, SizeIs(1));
      EXPECT_THAT(levels[0].ranks, SizeIs(size));
      EXPECT_EQ(levels[0].index, rank);
      EXPECT_EQ(levels[0].owners, size);
      EXPECT_TRUE(levels[0].is_top);
    }
  }
}

// Recursive halving and doubling: on level l with the rank that differs in
// bit l.
TEST(LevelsTest, ASideOfTwoHalves) {
  for (int rank = 0; rank < 16; ++rank) {
    const std::vector<Group> levels = PlanLevels(rank, 16, 2);
    ASSERT_THAT(levels, SizeIs(4));
    for (int level = 0; level < 4; ++level) {
      const int bit = 1 << level;
      EXPECT_THAT(levels[level].ranks, ElementsAre(rank & ~bit, rank | bit));
    }
  }
}

TEST(LevelsTest, WhoOwnsNothingGoesNoFurther) {
  const std::vector<Group> levels = PlanLevels(2, 7, 2);
  ASSERT_THAT(levels, SizeIs(1));
  EXPECT_THAT(levels[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_EQ(levels[0].index, 2);
  EXPECT_EQ(levels[0].owners, 2);
  EXPECT_FALSE(levels[0].is_top);
  EXPECT_THAT(LargestGroups(7, 2), ElementsAre(3, 3));
}

TEST(LevelsTest, FewPeersAtAnySize) {
  for (int size : {33, 100, 512, 1000, 4096}) {
    int side = 2;
    while (side * side < size) ++side;
    for (int rank : {0, 1, size / 2, size - 1}) {
      int peers = 0;
      const std::vector<Group> levels = PlanLevels(rank, size, side);
      for (const Group& group : levels) {
        peers += static_cast<int>(group.ranks.size()) - 1;
      }
      EXPECT_LE(levels.size(), 2u);
      EXPECT_LE(peers, 2 * side + 2);
    }
  }
}

class AnyLevels : public testing::TestWithParam<std::tuple<int, int>> {};

// All members of a group know it alike, and its members stand for all ranks:
// what is summed over the levels has each rank once.
TEST_P(AnyLevels, SumsHaveEachRankOnce) {
  const auto [size, side] = GetParam();
  std::vector<std::vector<Group>> all;
  size_t depth = 0;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(PlanLevels(rank, size, side));
    depth = std::max(depth, all.back().size());
  }
  const std::vector<int> largest = LargestGroups(size, side);
  ASSERT_EQ(largest.size(), depth);
  // What a rank has the sums of: itself.
  std::vector<std::multiset<int>> has(size);
  for (int rank = 0; rank < size; ++rank) has[rank] = {rank};
  for (size_t level = 0; level < depth; ++level) {
    const auto before = has;
    int most = 0;
    for (int rank = 0; rank < size; ++rank) {
      if (all[rank].size() <= level) continue;
      const Group& group = all[rank][level];
      EXPECT_EQ(group.ranks[group.index], rank);
      EXPECT_EQ(group.is_top, level + 1 == depth);
      EXPECT_TRUE(std::is_sorted(group.ranks.begin(), group.ranks.end()));
      most = std::max(most, static_cast<int>(group.ranks.size()));
      has[rank].clear();
      ASSERT_EQ(group.begins.size(), group.ranks.size() + 1);
      for (size_t member = 0; member < group.ranks.size(); ++member) {
        const int peer = group.ranks[member];
        std::multiset<int> stands_for;
        for (int i = group.begins[member]; i < group.begins[member + 1]; ++i) {
          stands_for.insert(i);
        }
        EXPECT_EQ(before[peer], stands_for);
        ASSERT_GT(all[peer].size(), level);
        EXPECT_EQ(all[peer][level].ranks, group.ranks);
        EXPECT_EQ(all[peer][level].owners, group.owners);
        has[rank].insert(before[peer].begin(), before[peer].end());
      }
      const bool goes_on = !group.is_top && group.index < group.owners;
      EXPECT_EQ(all[rank].size() > level + 1, goes_on);
    }
    EXPECT_EQ(most, largest[level]);
  }
  std::multiset<int> everybody;
  for (int rank = 0; rank < size; ++rank) everybody.insert(rank);
  for (int rank = 0; rank < size; ++rank) {
    if (all[rank].size() == depth) {
      EXPECT_EQ(has[rank], everybody);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, AnyLevels,
                         testing::Combine(testing::Values(1, 2, 3, 5, 7, 8, 9,
                                                          16, 31, 37, 100),
                                          testing::Values(2, 3, 5, 8, 40)));

}  // namespace
}  // namespace keras_ring
