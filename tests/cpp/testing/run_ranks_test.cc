#include "csrc/testing/run_ranks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

TEST(RunRanksTest, RunsEachRankOnceAndAtTheSameTime) {
  Mutex mutex;
  CondVar changed;
  std::set<int> present;
  RunRanks(7, [&](int rank) {
    MutexLock lock(mutex);
    EXPECT_TRUE(present.insert(rank).second);
    changed.NotifyAll();
    // Only if all are there together does this end.
    changed.Wait(mutex, [&] { return present.size() == 7; });
  });
  EXPECT_EQ(present, (std::set<int>{0, 1, 2, 3, 4, 5, 6}));
}

// Threads are used again, but not by two at once.
TEST(RunRanksTest, RanksMayRunRanks) {
  std::atomic<int> calls{0};
  for (int round = 0; round < 20; ++round) {
    RunRanks(3, [&](int) {
      RunRanks(2, [&](int) { ++calls; });
      ++calls;
    });
  }
  EXPECT_EQ(calls, 20 * 3 * 3);
}

TEST(RunRanksTest, NoRanksAreNoWork) {
  RunRanks(0, [](int) { FAIL(); });
}

TEST(RunRanksDeathTest, AHangNamesTheRanksThatHang) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(RunRanks(
                   4,
                   [](int rank) {
                     if (rank % 2 == 0) return;
                     Mutex mutex;
                     CondVar never;
                     MutexLock lock(mutex);
                     never.Wait(mutex, [] { return false; });
                   },
                   std::chrono::seconds(1)),
               "still running after 1 s, so this is a hang; ranks: 1 3");
}

}  // namespace
}  // namespace keras_ring
