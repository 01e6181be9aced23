#include "csrc/collective/shm/chunk_barrier.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/comm/net/socket.h"
#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

// Ranks of the job are not indexes: 10, 11, ...
constexpr int kFirstRank = 10;

class Group {
 public:
  Group(int size, const ChunkBarrierOptions& options) {
    std::vector<int> ranks;
    std::vector<ProgressPage*> all;
    for (int index = 0; index < size; ++index) {
      pages_.push_back(std::make_unique<ProgressPage>());
      all.push_back(pages_.back().get());
      ranks.push_back(kFirstRank + index);
    }
    for (int index = 0; index < size; ++index) {
      members_.push_back(std::make_unique<ChunkBarrier>(all, ranks, index,
                                                        options, counters_));
    }
  }

  ChunkBarrier& at(int index) { return *members_[index]; }
  Counters& counters() { return counters_; }
  // Returns once the rank sleeps, or is about to.
  void AwaitAsleep(int index) {
    while (pages_[index]->wait.asleep.load() == 0) std::this_thread::yield();
  }

 private:
  Counters counters_;
  std::vector<std::unique_ptr<ProgressPage>> pages_;
  std::vector<std::unique_ptr<ChunkBarrier>> members_;
};

ChunkBarrierOptions Options(Duration spin = Duration::zero(),
                            Duration limit = std::chrono::seconds(30)) {
  ChunkBarrierOptions options;
  options.spin = spin;
  options.limit = std::make_shared<IdleLimit>(limit);
  return options;
}

TEST(ChunkBarrier, WhatIsDoneIsNotWaitedFor) {
  Group group(3, Options());
  int progress = 0;
  const std::function<void()> duty = [&] { ++progress; };
  group.at(0).SetProgressCallback(&duty);
  group.at(1).Publish(Phase::kPacked, 1);
  group.at(2).Publish(Phase::kPacked, 1);
  EXPECT_TRUE(group.at(0).AwaitAll(Phase::kPacked, 1).ok());
  group.at(1).Publish(Phase::kReduced, 5);
  EXPECT_TRUE(group.at(0).Await(1, Phase::kReduced, 5).ok());
  EXPECT_TRUE(group.at(0).Await(1, Phase::kReduced, 4).ok());
  EXPECT_EQ(progress, 0);
  EXPECT_EQ(group.counters().wait_ns, 0u);
}

TEST(ChunkBarrier, AGroupOfOneWaitsForNobody) {
  Group group(1, Options());
  EXPECT_TRUE(group.at(0).AwaitAll(Phase::kPacked, 7).ok());
}

// Asleep without a nap's end in sight: a call that is lost costs 200 ms, and
// so many of them more than a test may take.
TEST(ChunkBarrier, ASleeperIsCalled) {
  for (Duration spin : {Duration::zero(), Duration(1)}) {
    Group group(2, Options(spin));
    const TimePoint began = std::chrono::steady_clock::now();
    RunRanks(2, [&](int index) {
      for (uint64_t chunk = 1; chunk <= 200; ++chunk) {
        if (index == 0) {
          group.AwaitAsleep(1);
          group.at(0).Publish(Phase::kReduced, chunk);
          // Not the next one before it has got up.
          ASSERT_TRUE(group.at(0).Await(1, Phase::kReduced, chunk).ok());
        } else {
          ASSERT_TRUE(group.at(1).Await(0, Phase::kReduced, chunk).ok());
          group.at(1).Publish(Phase::kReduced, chunk);
        }
      }
    });
    EXPECT_LT(std::chrono::steady_clock::now() - began,
              std::chrono::seconds(10));
    EXPECT_GT(group.counters().wait_ns, 0u);
  }
}

TEST(ChunkBarrier, AbortEndsTheWaitAndAllLaterOnes) {
  Group group(2, Options());
  const Status cause = AbortedError("the test says so");
  RunRanks(2, [&](int index) {
    if (index == 1) {
      EXPECT_EQ(group.at(1).Await(0, Phase::kPacked, 1), cause);
      return;
    }
    group.AwaitAsleep(1);
    group.at(1).Abort(cause);
    group.at(1).Abort(InternalError("too late"));
  });
  EXPECT_EQ(group.at(1).AwaitAll(Phase::kReduced, 1), cause);
  // What is done is done.
  group.at(0).Publish(Phase::kReduced, 1);
  EXPECT_TRUE(group.at(1).Await(0, Phase::kReduced, 1).ok());
}

TEST(ChunkBarrier, AbortEndsASpin) {
  Group group(2, Options(std::chrono::seconds(20)));
  const Status cause = AbortedError("the test says so");
  RunRanks(2, [&](int index) {
    if (index == 1) {
      EXPECT_EQ(group.at(1).Await(0, Phase::kPacked, 1), cause);
    } else {
      group.at(1).Abort(cause);
    }
  });
}

TEST(ChunkBarrier, ARankThatLeavesIsNamed) {
  Group group(2, Options());
  group.at(0).Publish(Phase::kReduced, 3);
  RunRanks(2, [&](int index) {
    if (index == 1) {
      EXPECT_EQ(group.at(1).Await(0, Phase::kReduced, 4),
                UnavailableError("rank 10 has left the job's collectives"));
      return;
    }
    group.AwaitAsleep(1);
    group.at(0).Leave();
  });
  EXPECT_TRUE(group.at(1).Await(0, Phase::kReduced, 3).ok());
}

// One that waits for a second rank, which waits for a third that has left, is
// told of the third: the second may say nothing for ever.
TEST(ChunkBarrier, ARankThatLeftBehindTheAwaitedOneIsNamed) {
  Group group(3, Options());
  group.at(2).Leave();
  EXPECT_EQ(group.at(0).Await(1, Phase::kPacked, 1),
            UnavailableError("rank 12 has left the job's collectives"));
}

// One that leaves because another's process has ended is not to blame, though
// that one had done its share; nor once its own process has ended, too.
TEST(ChunkBarrier, ARankWhoseProcessHasEndedIsNamedFirst) {
  Group group(3, Options());
  group.at(2).Publish(Phase::kPacked, 1);
  group.at(0).SetGone(2);
  group.at(0).Leave();
  EXPECT_EQ(group.at(1).Await(0, Phase::kPacked, 1),
            UnavailableError("rank 12 has left the job's collectives"));
  EXPECT_TRUE(group.at(1).Await(2, Phase::kPacked, 1).ok());
  group.at(1).SetGone(0);
  EXPECT_EQ(group.at(1).Await(0, Phase::kPacked, 1),
            UnavailableError("rank 12 has left the job's collectives"));
}

// A rank whose job is done leaves while the others finish theirs.
TEST(ChunkBarrier, ARankMayLeaveWhenItHasDoneAll) {
  for (int round = 0; round < 100; ++round) {
    Group group(3, Options());
    RunRanks(3, [&](int index) {
      group.at(index).Publish(Phase::kReduced, 1);
      const Status status = group.at(index).AwaitAll(Phase::kReduced, 1);
      EXPECT_TRUE(status.ok()) << status.ToString();
      group.at(index).Leave();
    });
  }
}

// Fault: a rank is silent for the whole limit. Error: then, and not before,
// with its rank in the job.
TEST(ChunkBarrier, ARankThatDoesNotMoveIsNamedAfterTheLimit) {
  ManualClock clock;
  ChunkBarrierOptions options = Options();
  options.clock = &clock;
  Group group(2, options);
  // A wait with progress looks at the clock every millisecond.
  std::atomic<int> looks{0};
  const std::function<void()> duty = [&] { ++looks; };
  group.at(0).SetProgressCallback(&duty);
  std::atomic<bool> over{false};
  std::thread waiting([&] {
    EXPECT_EQ(group.at(0).Await(1, Phase::kPacked, 1),
              DeadlineExceededError("rank 11 has not moved for 30 s"));
    over = true;
  });
  group.AwaitAsleep(0);
  const auto look = [&] {
    for (const int seen = looks; looks < seen + 5;) std::this_thread::yield();
  };
  for (int second = 0; second < 29; ++second) {
    clock.Advance(std::chrono::seconds(1));
    look();
  }
  clock.Advance(std::chrono::milliseconds(999));
  look();
  EXPECT_FALSE(over);
  clock.Advance(std::chrono::milliseconds(1));
  waiting.join();
}

TEST(ChunkBarrier, WithoutDutiesTheLimitIsTheSame) {
  ManualClock clock;
  ChunkBarrierOptions options = Options();
  options.clock = &clock;
  options.limit = std::make_shared<IdleLimit>(std::chrono::seconds(1));
  Group group(2, options);
  std::thread waiting([&] {
    EXPECT_EQ(group.at(0).Await(1, Phase::kPacked, 1).code(),
              StatusCode::kDeadlineExceeded);
  });
  group.AwaitAsleep(0);
  clock.Advance(std::chrono::seconds(1));
  waiting.join();
}

// Fault: this process stands still for longer than the limit, mostly with those
// that it waits for. No error: they get the rest of the time.
TEST(ChunkBarrier, ThePauseOfThisProcessIsNobodysSilence) {
  ManualClock clock;
  ChunkBarrierOptions options = Options();
  options.clock = &clock;
  Group group(2, options);
  std::atomic<int> looks{0};
  const std::function<void()> duty = [&] { ++looks; };
  group.at(0).SetProgressCallback(&duty);
  std::thread waiting([&] {
    const Status status = group.at(0).Await(1, Phase::kPacked, 1);
    EXPECT_TRUE(status.ok()) << status.ToString();
  });
  group.AwaitAsleep(0);
  clock.Advance(std::chrono::hours(1));
  for (const int seen = looks; looks < seen + 5;) std::this_thread::yield();
  group.at(1).Publish(Phase::kPacked, 1);
  waiting.join();
}

TEST(ChunkBarrier, AnotherCollectiveIsAnError) {
  Group group(2, Options());
  group.at(0).SetTag(7);
  group.at(1).SetTag(8);
  group.at(0).Publish(Phase::kPacked, 1);
  group.at(1).Publish(Phase::kPacked, 1);
  EXPECT_EQ(group.at(0).Await(1, Phase::kPacked, 1),
            InternalError("rank 11 runs collective 8 while this rank runs 7"));
  EXPECT_EQ(group.at(1).AwaitAll(Phase::kPacked, 1),
            InternalError("rank 10 runs collective 7 while this rank runs 8"));
  // That of the chunk, even if its rank is one further on.
  group.at(1).SetTag(7);
  group.at(0).Publish(Phase::kReduced, 1);
  group.at(0).SetTag(9);
  group.at(0).Publish(Phase::kPacked, 2);
  EXPECT_TRUE(group.at(1).Await(0, Phase::kPacked, 1).ok());
}

// A rank has begun the next collective, with all slots that it has for it,
// while another one looks at the first chunk of the last ones of this.
TEST(ChunkBarrier, ARankThatIsAheadIsNoError) {
  const uint64_t depth = ProgressPage::kMaxDepth;
  Group group(2, Options());
  for (int index : {0, 1}) group.at(index).SetTag(7);
  for (uint64_t chunk = 1; chunk <= depth; ++chunk) {
    for (int index : {0, 1}) group.at(index).Publish(Phase::kPacked, chunk);
  }
  group.at(0).SetTag(8);
  for (uint64_t chunk = depth + 1; chunk <= 2 * depth; ++chunk) {
    group.at(0).Publish(Phase::kPacked, chunk);
  }
  EXPECT_TRUE(group.at(1).CheckTags(1).ok());
  EXPECT_FALSE(group.at(1).CheckTags(depth + 1).ok());
}

TEST(ChunkBarrier, DutiesAreDoneWhileWaiting) {
  Group group(2, Options());
  std::atomic<int> done{0};
  const std::function<void()> duty = [&] { ++done; };
  RunRanks(2, [&](int index) {
    if (index == 0) {
      while (done < 5) std::this_thread::yield();
      group.at(0).Publish(Phase::kReduced, 1);
      return;
    }
    group.at(1).SetProgressCallback(&duty);
    EXPECT_TRUE(group.at(1).Await(0, Phase::kReduced, 1).ok());
    group.at(1).SetProgressCallback(nullptr);
  });
  const int before = done;
  group.at(1).Leave();
  EXPECT_FALSE(group.at(0).Await(1, Phase::kReduced, 1).ok());
  EXPECT_EQ(done, before);
}

// Who does its progress may learn there that the wait is in vain.
TEST(ChunkBarrier, ADutyMayAbort) {
  Group group(2, Options());
  const Status cause = UnavailableError("lost rank 11");
  int calls = 0;
  const std::function<void()> duty = [&] {
    if (++calls == 3) group.at(0).Abort(cause);
  };
  group.at(0).SetProgressCallback(&duty);
  EXPECT_EQ(group.at(0).AwaitAll(Phase::kPacked, 1), cause);
  EXPECT_EQ(calls, 3);
}

// The protocol of the collectives in small, with plain memory in place of the
// slots: TSAN sees whether the counts order it. Delays at random, so that each
// wait is met spinning, falling asleep and asleep.
class LockstepStress : public testing::TestWithParam<std::tuple<int, int>> {};

INSTANTIATE_TEST_SUITE_P(Sizes, LockstepStress,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(0, 50)));

TEST_P(LockstepStress, NobodyReadsTooEarlyOrWritesTooEarly) {
  constexpr uint64_t kChunks = 1500;
  const int size = std::get<0>(GetParam());
  Group group(size,
              Options(std::chrono::microseconds(std::get<1>(GetParam()))));
  std::vector<std::vector<uint64_t>> slots(size, {0, 0});
  RunRanks(size, [&](int index) {
    std::mt19937 random(index);
    auto dawdle = [&] {
      const uint32_t kind = random() % 256;
      const Deadline soon = Deadline::AfterSeconds(1);
      if (kind == 0) Pause(std::chrono::microseconds(random() % 1000), soon);
      if (kind < 32) std::this_thread::yield();
    };
    const std::function<void()> duty = dawdle;
    ChunkBarrier& own = group.at(index);
    if (index % 2 == 1) own.SetProgressCallback(&duty);
    for (uint64_t chunk = 1; chunk <= kChunks; ++chunk) {
      own.SetTag(chunk / 5);
      dawdle();
      if (chunk > 2) {
        ASSERT_TRUE(own.AwaitAll(Phase::kReduced, chunk - 2).ok());
      }
      slots[index][chunk % 2] = chunk * 10 + index;
      own.Publish(Phase::kPacked, chunk);
      dawdle();
      for (int i = 1; i < size; ++i) {
        const int other = (index + i) % size;
        const Status status = own.Await(other, Phase::kPacked, chunk);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(slots[other][chunk % 2], chunk * 10 + other);
      }
      own.Publish(Phase::kReduced, chunk);
    }
  });
}

}  // namespace
}  // namespace keras_ring
