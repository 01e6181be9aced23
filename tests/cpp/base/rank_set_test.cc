#include "csrc/base/rank_set.h"

#include <gtest/gtest.h>

namespace keras_ring {
namespace {

TEST(RankSet, OfTheJobChangesNothing) {
  const RankSet job;
  EXPECT_TRUE(job.is_job());
  EXPECT_EQ(job.number(), 0u);
  EXPECT_EQ(job.Global(3), 3);
  EXPECT_EQ(job.Local(3), 3);
  EXPECT_EQ(job.Global(std::vector<int32_t>{2, 5}),
            (std::vector<int32_t>{2, 5}));
  EXPECT_EQ(job.Text(), "the job");
}

TEST(RankSet, CountsFromZeroInTheOrderOfTheRanks) {
  const RankSet set(4, {1, 3, 7});
  EXPECT_FALSE(set.is_job());
  EXPECT_EQ(set.Global(0), 1);
  EXPECT_EQ(set.Global(2), 7);
  EXPECT_EQ(set.Global(std::vector<int32_t>{0, 2}),
            (std::vector<int32_t>{1, 7}));
  EXPECT_EQ(set.Local(3), 1);
  EXPECT_EQ(set.Local(7), 2);
  EXPECT_EQ(set.Local(0), -1);
  EXPECT_EQ(set.Local(2), -1);
  EXPECT_EQ(set.Local(8), -1);
  EXPECT_EQ(set.Text(), "process set 4 (ranks 1, 3, 7)");
  EXPECT_EQ(RankSet(2, {5}).Text(), "process set 2 (rank 5)");
}

// The job lives as long as any set.
TEST(RankSet, NoSetHasTheTagOfTheJob) {
  EXPECT_EQ(RankSet().tag(), 0);
  EXPECT_EQ(RankSet::TagOf(1), 1);
  EXPECT_EQ(RankSet::TagOf(32766), 32766);
  EXPECT_EQ(RankSet::TagOf(32767), 32767);
  EXPECT_EQ(RankSet::TagOf(32768), 1);
  EXPECT_EQ(RankSet::TagOf(2 * 32767), 32767);
  EXPECT_EQ(RankSet::TagOf(UINT32_MAX), 1 + (UINT32_MAX - 1) % 32767);
  EXPECT_EQ(RankSet(32767, {1, 2}).tag(), 32767);
}

TEST(RankList, JoinsRuns) {
  EXPECT_EQ(RankList({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  EXPECT_EQ(RanksText({3}), "rank 3");
  EXPECT_EQ(RanksText({3, 4}), "ranks 3-4");
}

}  // namespace
}  // namespace keras_ring
