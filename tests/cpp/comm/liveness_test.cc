#include "csrc/comm/host/liveness.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/comm/net/socket.h"
#include "csrc/testing/doomed_thread.h"

namespace keras_ring {
namespace {

using State = LivenessFutex::State;

const std::atomic<uint32_t> kNever{0};

TEST(Liveness, IsLeftWhenTheHoldEnds) {
  LivenessFutex futex;
  EXPECT_EQ(futex.state(), State::kNotYet);
  {
    LivenessHold hold(futex);
    ASSERT_TRUE(hold.status().ok()) << hold.status().ToString();
    EXPECT_EQ(futex.state(), State::kAlive);
  }
  EXPECT_EQ(futex.state(), State::kLeft);
  EXPECT_EQ(futex.AwaitEnd(kNever), State::kLeft);
}

// Each of several waiters hears of it, of which the kernel wakes one, and one
// that comes after it.
TEST(Liveness, TheEndOfTheHoldingThreadIsDeath) {
  for (bool waits_before_hold : {false, true}) {
    LivenessFutex futex;
    std::vector<std::thread> waiters;
    std::atomic<int> heard{0};
    const auto wait = [&] {
      for (int i = 0; i < 3; ++i) {
        waiters.emplace_back([&] {
          EXPECT_EQ(futex.AwaitEnd(kNever), State::kDied);
          ++heard;
        });
      }
    };
    if (waits_before_hold) wait();
    DoomedThread thread(futex);
    EXPECT_EQ(futex.state(), State::kAlive);
    if (!waits_before_hold) wait();
    EXPECT_EQ(heard, 0);
    thread.Die();
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(futex.AwaitEnd(kNever), State::kDied);
    futex.Leave();
    EXPECT_EQ(futex.state(), State::kDied);
  }
}

// Any thread may say so.
TEST(Liveness, WhoHasLeftDoesNotDie) {
  LivenessFutex futex;
  DoomedThread thread(futex);
  std::thread waiter([&] { EXPECT_EQ(futex.AwaitEnd(kNever), State::kLeft); });
  futex.Leave();
  waiter.join();
  thread.Die();
  EXPECT_EQ(futex.state(), State::kLeft);
}

TEST(Liveness, WhoHasLeftCannotBeHeld) {
  LivenessFutex futex;
  futex.Leave();
  LivenessHold hold(futex);
  EXPECT_EQ(futex.state(), State::kLeft);
}

TEST(Liveness, AKilledProcessHasDied) {
  void* const page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto& futex = *new (page) LivenessFutex;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    LivenessHold hold(futex);
    for (;;) pause();
  }
  const Deadline deadline = Deadline::AfterSeconds(20);
  while (futex.state() != State::kAlive && !deadline.expired()) {
    Pause(std::chrono::milliseconds(1), deadline);
  }
  ASSERT_EQ(futex.state(), State::kAlive);
  // A process that is stopped lives.
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(futex.state(), State::kAlive);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(futex.AwaitEnd(kNever), State::kDied);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(munmap(page, 4096), 0);
}

// The wake-ups fall at any moment of the waiter's.
TEST(Liveness, AWaiterCanBeStopped) {
  LivenessFutex futex;
  LivenessHold hold(futex);
  for (int round = 0; round < 200; ++round) {
    std::atomic<uint32_t> stop{0};
    std::atomic<bool> ended{false};
    std::thread waiter([&] {
      EXPECT_EQ(futex.AwaitEnd(stop), State::kAlive);
      ended = true;
    });
    stop = 1;
    while (!ended) {
      futex.WakeAll();
      std::this_thread::yield();
    }
    waiter.join();
  }
}

}  // namespace
}  // namespace keras_ring
