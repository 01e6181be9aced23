// ShmCollective in the suite of all collectives, and what only it does.
#include "csrc/collective/shm/shm_collective.h"

#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "csrc/base/deadline.h"
#include "csrc/comm/host/arena.h"
#include "csrc/comm/net/socket.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/local_host_group.h"
#include "csrc/testing/partly_in_arena.h"

namespace keras_ring {
namespace {

struct ShmFoundation {
  Counters counters;
  std::unique_ptr<HostGroup> group;
};

std::vector<CollectiveMember> MakeShm(int size,
                                      const ShmCollectiveOptions& options) {
  HostGroupLayout layout;
  layout.data_bytes = ShmCollective::DataBytes(size, options);
  std::vector<CollectiveMember> members;
  for (auto& group : CreateLocalHostGroups(size, layout)) {
    auto foundation = std::make_shared<ShmFoundation>();
    foundation->group = std::move(group);
    auto collective = std::make_unique<ShmCollective>(
        *foundation->group, options, foundation->counters);
    members.push_back({std::move(foundation), std::move(collective)});
  }
  return members;
}

// Parts of one cache line, so that nearly everything takes many chunks.
ShmCollectiveOptions SmallParts(Duration spin) {
  ShmCollectiveOptions options;
  options.part_bytes = 64;
  options.one_shot_bytes = 96;
  options.barrier.spin = spin;
  return options;
}

std::vector<CollectiveMember> MakeSleeping(int size) {
  return MakeShm(size, SmallParts(Duration::zero()));
}
std::vector<CollectiveMember> MakeSpinning(int size) {
  ShmCollectiveOptions options = SmallParts(std::chrono::microseconds(100));
  options.stream_bytes = 1000;
  return MakeShm(size, options);
}
std::vector<CollectiveMember> MakeUsual(int size) {
  return MakeShm(size, ShmCollectiveOptions());
}

struct ArenaFoundation {
  SystemClock clock;
  std::shared_ptr<Arena> arena;
  Counters counters;
  std::unique_ptr<HostGroup> group;
  std::unique_ptr<ShmCollective> collective;
};

std::vector<CollectiveMember> MakeDirect(int size) {
  ShmCollectiveOptions options = SmallParts(Duration::zero());
  options.direct_bytes = 0;
  options.direct_part_bytes = 128;
  options.stream_bytes = 1000;
  HostGroupLayout layout;
  layout.data_bytes = ShmCollective::DataBytes(size, options);
  std::vector<std::shared_ptr<ArenaFoundation>> foundations;
  std::vector<std::shared_ptr<const SharedMemory>> memories;
  for (int rank = 0; rank < size; ++rank) {
    auto foundation = std::make_shared<ArenaFoundation>();
    auto arena = Arena::Create(size_t{1} << 30, foundation->clock);
    KR_CHECK(arena.ok());
    foundation->arena = std::move(arena).value();
    memories.emplace_back(foundation->arena, &foundation->arena->memory());
    foundations.push_back(std::move(foundation));
  }
  auto groups = CreateLocalHostGroups(size, layout, memories);
  std::vector<CollectiveMember> members;
  for (int rank = 0; rank < size; ++rank) {
    ArenaFoundation& foundation = *foundations[rank];
    foundation.group = std::move(groups[rank]);
    foundation.collective = std::make_unique<ShmCollective>(
        *foundation.group, options, foundation.counters);
    auto collective = std::make_unique<PartlyInArena>(*foundation.collective,
                                                      *foundation.arena, rank);
    members.push_back({foundations[rank], std::move(collective)});
  }
  return members;
}

INSTANTIATE_TEST_SUITE_P(
    Shm, CollectiveConformance,
    testing::Combine(
        testing::Values(CollectiveFactory{"sleeping", MakeSleeping},
                        CollectiveFactory{"spinning", MakeSpinning},
                        CollectiveFactory{"usual", MakeUsual},
                        CollectiveFactory{"direct", MakeDirect}),
        testing::ValuesIn(kConformanceSizes)),
    CollectiveConformance::Name);

// --- Delays ---

// A moment of random length, now and then so long that others fall asleep.
void Dawdle(std::mt19937& random) {
  const uint32_t kind = random() % 256;
  if (kind == 0) {
    Pause(std::chrono::microseconds(random() % 1000),
          Deadline::AfterSeconds(1));
  } else if (kind < 48) {
    std::this_thread::yield();
  }
}

// A rank that dawdles between its calls and whenever it waits in one.
class SlowRank {
 public:
  SlowRank(Collective& collective, uint32_t seed)
      : collective_(*collective.inline_execution()), random_(seed) {
    collective_.SetProgressCallback(&dawdle_);
  }
  ~SlowRank() { collective_.SetProgressCallback(nullptr); }
  void Dawdle() { keras_ring::Dawdle(random_); }

 private:
  InlineExecution& collective_;
  std::mt19937 random_;
  const std::function<void()> dawdle_ = [this] { Dawdle(); };
};

// Floats of very different sizes: every order of adding gives other bits.
std::vector<std::vector<float>> UnevenValues(int size, int64_t count,
                                             uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<float>> values(size, std::vector<float>(count));
  for (auto& of_rank : values) {
    for (float& value : of_rank) {
      value = std::ldexp(1.0f + static_cast<float>(random() % 65536) / 65536,
                         static_cast<int>(random() % 24) - 12) *
              (random() % 2 ? 1.0f : -1.0f);
    }
  }
  return values;
}

// Sums in the order of the ranks, one after the other.
std::vector<float> SumInOrder(const std::vector<std::vector<float>>& values) {
  std::vector<float> sums = values[0];
  for (size_t rank = 1; rank < values.size(); ++rank) {
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[rank][i];
  }
  return sums;
}

// Whatever the timing, and whether in one shot or two, in few chunks or many:
// the bits of a loop over the ranks.
TEST(ShmCollective, SumsInTheOrderOfTheRanks) {
  ShmCollectiveOptions one_shot = SmallParts(Duration::zero());
  one_shot.part_bytes = 8192;
  one_shot.one_shot_bytes = size_t{1} << 20;
  ShmCollectiveOptions two_shots = one_shot;
  two_shots.one_shot_bytes = 0;
  const std::vector<ShmCollectiveOptions> variants = {
      one_shot, two_shots, SmallParts(Duration::zero()),
      SmallParts(std::chrono::microseconds(50)), ShmCollectiveOptions()};
  for (int size : {2, 3, 5}) {
    for (const ShmCollectiveOptions& options : variants) {
      auto members = MakeShm(size, options);
      for (uint32_t round = 0; round < 12; ++round) {
        const int64_t count = 1 + (round * 397) % 1800;
        const auto values = UnevenValues(size, count, round);
        const std::vector<float> expected = SumInOrder(values);
        RunRanks(size, [&](int rank) {
          CollectiveCalls collective(*members[rank].collective);
          SlowRank slow(*members[rank].collective, round * 10 + rank);
          slow.Dawdle();
          std::vector<float> output(count);
          AllreduceArgs args;
          args.tag = round;
          args.tensors = {{values[rank].data(), output.data(), count}};
          const Status status = collective.Allreduce(args);
          ASSERT_TRUE(status.ok()) << status.ToString();
          EXPECT_EQ(conformance::Bytes(output), conformance::Bytes(expected))
              << size << " ranks, round " << round << ", rank " << rank;
        });
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Compressed, too: of what is in the slots, the own part included.
TEST(ShmCollective, SumsWhatWasRoundedInTheOrderOfTheRanks) {
  ShmCollectiveOptions one_shot = SmallParts(Duration::zero());
  one_shot.part_bytes = 8192;
  one_shot.one_shot_bytes = size_t{1} << 20;
  const std::vector<ShmCollectiveOptions> variants = {
      one_shot, SmallParts(Duration::zero()),
      SmallParts(std::chrono::microseconds(50)), ShmCollectiveOptions()};
  auto rounded = [](float value) { return ToFloat(ToFloat16(value)); };
  for (int size : {1, 2, 3, 5}) {
    for (const ShmCollectiveOptions& options : variants) {
      auto members = MakeShm(size, options);
      for (uint32_t round = 0; round < 12; ++round) {
        const int64_t count = 1 + (round * 397) % 1800;
        const auto values = UnevenValues(size, count, round);
        auto packed = values;
        for (auto& of_rank : packed) {
          for (float& value : of_rank) value = rounded(value * 0.3f);
        }
        std::vector<float> expected = SumInOrder(packed);
        for (float& value : expected) value = rounded(value * 0.7f);
        RunRanks(size, [&](int rank) {
          CollectiveCalls collective(*members[rank].collective);
          SlowRank slow(*members[rank].collective, round * 10 + rank);
          slow.Dawdle();
          std::vector<float> output(count);
          AllreduceArgs args;
          args.tag = round;
          args.compression = Compression::kFloat16;
          args.prescale = 0.3;
          args.postscale = 0.7;
          args.tensors = {{values[rank].data(), output.data(), count}};
          const Status status = collective.Allreduce(args);
          ASSERT_TRUE(status.ok()) << status.ToString();
          EXPECT_EQ(conformance::Bytes(output), conformance::Bytes(expected))
              << size << " ranks, round " << round << ", rank " << rank;
        });
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// All five collectives mixed, of no, one and many chunks, while every rank is
// late at random, between them and inside.
class ShmCollectiveStress
    : public testing::TestWithParam<std::tuple<int, int>> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ShmCollectiveStress,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(0, 50)));

TEST_P(ShmCollectiveStress, MixedCollectivesWithDelays) {
  const int size = std::get<0>(GetParam());
  auto members = MakeShm(
      size, SmallParts(std::chrono::microseconds(std::get<1>(GetParam()))));
  RunRanks(size, [&](int rank) {
    CollectiveCalls collective(*members[rank].collective);
    std::mt19937 choices(size);  // alike on all ranks
    SlowRank slow(*members[rank].collective, 100 + rank);
    // The element `i` of what `from` has for `to` in collective `tag`.
    auto number = [](uint64_t tag, int from, int to, int64_t i) {
      return static_cast<int32_t>(tag * 7919 + from * 104729 + to * 1299709 +
                                  i);
    };
    for (uint64_t tag = 1; tag <= 1000; ++tag) {
      const int kind = static_cast<int>(choices() % 5);
      const int64_t base = choices() % 4 == 0 ? 0 : choices() % 120;
      const int root = static_cast<int>(choices() % size);
      // Blocks of different lengths, some empty.
      std::vector<int64_t> counts(size);
      for (int64_t& count : counts) {
        count = choices() % 3 == 0 ? 0 : base + choices() % 40;
      }
      std::vector<int32_t> input, output, expected;
      Status status;
      if (kind == 0) {
        for (int64_t i = 0; i < base; ++i) {
          input.push_back(number(tag, rank, 0, i));
          int32_t sum = 0;
          for (int r = 0; r < size; ++r) sum += number(tag, r, 0, i);
          expected.push_back(sum);
        }
        output = input;
        AllreduceArgs args;
        args.tag = tag;
        args.dtype = DType::kInt32;
        const int64_t first = base / 3;
        args.tensors = {
            {input.data(), output.data(), first},
            {output.data() + first, output.data() + first, base - first}};
        status = collective.Allreduce(args);
      } else if (kind == 1) {
        AllgatherArgs args;
        for (int r = 0; r < size; ++r) {
          args.bytes_per_rank.push_back(counts[r] * sizeof(int32_t));
          for (int64_t i = 0; i < counts[r]; ++i) {
            expected.push_back(number(tag, r, 0, i));
            if (r == rank) input.push_back(expected.back());
          }
        }
        output.resize(expected.size());
        args.tag = tag;
        args.input = input.data();
        args.output = output.data();
        status = collective.Allgather(args);
      } else if (kind == 2) {
        for (int64_t i = 0; i < base; ++i) {
          expected.push_back(number(tag, root, 0, i));
        }
        output.assign(base, -1);
        if (rank == root) output = expected;
        BroadcastArgs args;
        args.tag = tag;
        args.root = root;
        args.tensors = {{output.data(), output.data(),
                         static_cast<int64_t>(base * sizeof(int32_t))}};
        status = collective.Broadcast(args);
      } else if (kind == 3) {
        for (int to = 0; to < size; ++to) {
          for (int64_t i = 0; i < counts[to]; ++i) {
            input.push_back(number(tag, rank, to, i));
          }
        }
        for (int64_t i = 0; i < counts[rank]; ++i) {
          int32_t sum = 0;
          for (int r = 0; r < size; ++r) sum += number(tag, r, rank, i);
          expected.push_back(sum);
        }
        output.assign(expected.size(), -1);
        ReducescatterArgs args;
        args.tag = tag;
        args.dtype = DType::kInt32;
        args.input = input.data();
        args.output = output.data();
        args.count_per_rank = counts;
        status = collective.Reducescatter(args);
      } else {
        // From `from` to `to`: as many as counts has for their sum.
        auto count_of = [&](int from, int to) {
          return counts[(from + to) % size];
        };
        AlltoallArgs args;
        args.size = size;
        args.bytes = [&](int from, int to) {
          return count_of(from, to) * sizeof(int32_t);
        };
        for (int from = 0; from < size; ++from) {
          for (int to = 0; to < size; ++to) {
            for (int64_t i = 0; i < count_of(from, to); ++i) {
              if (from == rank) input.push_back(number(tag, from, to, i));
              if (to == rank) expected.push_back(number(tag, from, to, i));
            }
          }
        }
        output.assign(expected.size(), -1);
        args.tag = tag;
        args.input = input.data();
        args.output = output.data();
        status = collective.Alltoall(args);
      }
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_TRUE(output == expected)
          << "kind " << kind << ", tag " << tag << ", rank " << rank;
      slow.Dawdle();
    }
  });
}

// --- Failures ---

AllreduceArgs SumInPlace(std::vector<float>& values, uint64_t tag) {
  AllreduceArgs args;
  args.tag = tag;
  args.tensors = {
      {values.data(), values.data(), static_cast<int64_t>(values.size())}};
  return args;
}

// Fault: rank 1 breaks off in the middle of an allreduce of many chunks: while
// it waits itself, or at any moment. Errors: its own cause on it; on the others
// kUnavailable with its rank, long before the limit of a wait.
TEST(ShmCollective, ARankThatBreaksOffFreesTheOthers) {
  for (Duration spin : {Duration::zero(), Duration(50000)}) {
    for (int round = 0; round < 20; ++round) {
      auto members = MakeShm(3, SmallParts(spin));
      const Status cause = AbortedError("the test says so");
      TimePoint broken;
      RunRanks(4, [&](int rank) {
        if (rank == 3) {
          if (spin == Duration::zero()) return;
          Pause(std::chrono::microseconds(200 * round),
                Deadline::AfterSeconds(1));
          broken = std::chrono::steady_clock::now();
          members[1].collective->Abort(cause);
          return;
        }
        CollectiveCalls collective(*members[rank].collective);
        int waits = 0;
        const std::function<void()> duty = [&] {
          if (++waits != 1 + round) return;
          broken = std::chrono::steady_clock::now();
          collective.Abort(cause);
        };
        if (rank == 1 && spin == Duration::zero())
          members[1].collective->inline_execution()->SetProgressCallback(&duty);
        Status status;
        uint64_t tag = 0;
        while (status.ok()) {
          std::vector<float> values(20000, 1.0f);
          status = collective.Allreduce(SumInPlace(values, ++tag));
        }
        if (rank == 1) {
          EXPECT_EQ(status, cause);
        } else {
          // Of itself, or of the other one that it has freed.
          EXPECT_EQ(status.code(), StatusCode::kUnavailable);
          EXPECT_NE(status.message().find("has left the job's collectives"),
                    std::string::npos);
        }
        std::vector<float> values(4, 1.0f);
        EXPECT_EQ(collective.Allreduce(SumInPlace(values, ++tag)), status);
      });
      EXPECT_LT(std::chrono::steady_clock::now() - broken,
                std::chrono::seconds(2));
    }
  }
}

// Fault: a call of rank 2 fails before it does anything. As above.
TEST(ShmCollective, ARankWithABadArgumentFreesTheOthers) {
  auto members = MakeShm(3, SmallParts(Duration::zero()));
  RunRanks(3, [&](int rank) {
    std::vector<float> values(1000, 1.0f);
    AllreduceArgs args = SumInPlace(values, 1);
    if (rank == 2) args.divisor = 0;
    const Status status =
        CollectiveCalls(*members[rank].collective).Allreduce(args);
    EXPECT_EQ(status.code(), rank == 2 ? StatusCode::kInvalidArgument
                                       : StatusCode::kUnavailable);
  });
}

// Fault: rank 1 does nothing any more, and is still there. Errors: on those
// that wait for it kDeadlineExceeded with its rank after the limit; on those
// that wait for these, what they say.
TEST(ShmCollective, ARankThatStopsIsNamedAfterTheLimit) {
  ShmCollectiveOptions options = SmallParts(Duration::zero());
  options.barrier.limit =
      std::make_shared<IdleLimit>(std::chrono::milliseconds(100));
  auto members = MakeShm(3, options);
  std::vector<Status> statuses(3);
  RunRanks(3, [&](int rank) {
    if (rank == 1) return;
    std::vector<float> values(1000, 1.0f);
    statuses[rank] = CollectiveCalls(*members[rank].collective)
                         .Allreduce(SumInPlace(values, 1));
  });
  int named = 0;
  for (int rank : {0, 2}) {
    EXPECT_FALSE(statuses[rank].ok());
    named += statuses[rank] ==
             DeadlineExceededError("allreduce: rank 1 has not moved for 0.1 s");
  }
  EXPECT_GE(named, 1);
}

// Where the time went is told apart, so that kr.metrics() can.
TEST(ShmCollective, CountsWhereTheTimeGoes) {
  auto members = MakeShm(2, SmallParts(Duration::zero()));
  RunRanks(2, [&](int rank) {
    if (rank == 1) {
      Pause(std::chrono::milliseconds(20), Deadline::AfterSeconds(1));
    }
    std::vector<float> values(5000, 1.0f);
    ASSERT_TRUE(CollectiveCalls(*members[rank].collective)
                    .Allreduce(SumInPlace(values, 1))
                    .ok());
  });
  const auto& counters =
      static_cast<ShmFoundation*>(members[0].foundation.get())->counters;
  EXPECT_GT(counters.wait_ns, 10'000'000u);
  EXPECT_GT(counters.pack_ns, 0u);
  EXPECT_GT(counters.reduce_ns, 0u);
  EXPECT_GT(counters.unpack_ns, 0u);
}

}  // namespace
}  // namespace keras_ring
