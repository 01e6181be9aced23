#include "csrc/base/sticky_status.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

const Status kFirst = UnavailableError("rank 3 is gone");
const Status kSecond = InternalError("what came of it");

TEST(StickyStatus, KeepsTheFirstFailure) {
  StickyStatus sticky;
  EXPECT_TRUE(sticky.Get().ok());
  EXPECT_FALSE(sticky.Set(OkStatus()));
  EXPECT_TRUE(sticky.Set(kFirst));
  EXPECT_FALSE(sticky.Set(kSecond));
  EXPECT_FALSE(sticky.Set(OkStatus()));
  EXPECT_EQ(sticky.Get(), kFirst);
}

TEST(StickyStatus, RunKeepsAFailureAndDoesNotRunAgain) {
  StickyStatus sticky;
  int calls = 0;
  auto run = [&](const Status& status) {
    return sticky.Run([&] {
      ++calls;
      return status;
    });
  };
  EXPECT_TRUE(run(OkStatus()).ok());
  EXPECT_EQ(run(kFirst), kFirst);
  EXPECT_EQ(run(OkStatus()), kFirst);
  EXPECT_EQ(calls, 2);
}

// What was set while it ran is why it failed, or why its success is no good.
TEST(StickyStatus, WhatIsSetDuringARunGoesFirst) {
  for (const Status& own : {kSecond, OkStatus()}) {
    StickyStatus sticky;
    EXPECT_EQ(sticky.Run([&] {
      sticky.Set(kFirst);
      return own;
    }),
              kFirst);
  }
}

TEST(StickyStatus, OneOfManyThreadsIsTheFirst) {
  for (int round = 0; round < 200; ++round) {
    StickyStatus sticky;
    std::atomic<int> kept{0};
    RunRanks(3, [&](int thread) {
      const Status own = AbortedError(std::to_string(thread));
      if (sticky.Set(own)) {
        ++kept;
        EXPECT_EQ(sticky.Get(), own);
      }
      EXPECT_FALSE(sticky.Get().ok());
    });
    EXPECT_EQ(kept, 1);
  }
}

}  // namespace
}  // namespace keras_ring
