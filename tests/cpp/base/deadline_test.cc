#include "csrc/base/deadline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

using std::chrono::milliseconds;

TEST(Deadline, ExpiresWhenItsTimeHasCome) {
  EXPECT_TRUE(Deadline::After(Duration::zero()).expired());
  EXPECT_TRUE(Deadline::AfterSeconds(-1.0).expired());
  EXPECT_FALSE(Deadline::AfterSeconds(100.0).expired());
}

TEST(Deadline, PollTimeoutRoundsUpAndStaysInRange) {
  EXPECT_EQ(Deadline::AfterSeconds(-5.0).PollTimeoutMs(), 0);
  // Truncated, it would be 0 for a millisecond, and poll would spin.
  EXPECT_EQ(Deadline::After(std::chrono::microseconds(900)).PollTimeoutMs(), 1);
  int ms = Deadline::AfterSeconds(10.0).PollTimeoutMs();
  EXPECT_GT(ms, 9000);
  EXPECT_LE(ms, 10000);
  EXPECT_EQ(Deadline(TimePoint::max()).PollTimeoutMs(), 1 << 30);
}

TEST(ManualClock, StandsStillUntilAdvanced) {
  ManualClock clock;
  TimePoint start = clock.Now();
  EXPECT_NE(start, TimePoint());
  EXPECT_EQ(clock.Now(), start);
  clock.Advance(milliseconds(5));
  EXPECT_EQ(clock.Now() - start, milliseconds(5));
}

TEST(CondVar, WakesAWaiter) {
  Mutex mutex;
  CondVar changed;
  bool flag = false;
  std::thread setter([&] {
    MutexLock lock(mutex);
    flag = true;
    changed.NotifyAll();
  });
  {
    MutexLock lock(mutex);
    changed.Wait(mutex, [&] { return flag; });
    EXPECT_TRUE(flag);
  }
  setter.join();
}

TEST(CondVar, WaitUntilGivesUp) {
  Mutex mutex;
  CondVar changed;
  MutexLock lock(mutex);
  EXPECT_FALSE(changed.WaitUntil(
      mutex, std::chrono::steady_clock::now() + milliseconds(1),
      [] { return false; }));
}

}  // namespace
}  // namespace keras_ring
