#include "csrc/base/running_clock.h"

#include <gtest/gtest.h>

namespace keras_ring {
namespace {

using std::chrono::seconds;

TEST(RunningClock, ShowsTheTimeOfAThreadThatLooksInTime) {
  ManualClock clock;
  RunningClock running(clock, seconds(10));
  const TimePoint began = running.Skip();
  for (int i = 1; i <= 5; ++i) {
    clock.Advance(seconds(10));
    EXPECT_EQ(running.Look(), seconds(0));
    EXPECT_EQ(running.Now(), began + i * seconds(10));
  }
  EXPECT_EQ(running.Now(), clock.Now());
}

TEST(RunningClock, LosesWhatGoesBeyondTheGap) {
  ManualClock clock;
  RunningClock running(clock, seconds(10));
  const TimePoint began = running.Skip();
  clock.Advance(seconds(3600));
  EXPECT_EQ(running.Now(), began + seconds(10)) << "before it is known";
  EXPECT_EQ(running.Look(), seconds(3590));
  EXPECT_EQ(running.Now(), began + seconds(10));
  EXPECT_EQ(running.Look(), seconds(0));
  clock.Advance(seconds(11));
  EXPECT_EQ(running.Look(), seconds(1));
  EXPECT_EQ(running.Now(), began + seconds(20));
  EXPECT_EQ(running.Outside(running.Now()), clock.Now());
}

TEST(RunningClock, WhoHadNothingToLookAfterLosesNothing) {
  ManualClock clock;
  RunningClock running(clock, seconds(10));
  clock.Advance(seconds(3600));
  EXPECT_EQ(running.Skip(), clock.Now());
  clock.Advance(seconds(10));
  EXPECT_EQ(running.Look(), seconds(0));
  EXPECT_EQ(running.Now(), clock.Now());
}

}  // namespace
}  // namespace keras_ring
