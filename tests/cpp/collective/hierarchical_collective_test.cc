// HierarchicalCollective in the suite of all collectives, and what only it
// does.
#include "csrc/collective/hierarchy/hierarchical_collective.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/task_thread.h"
#include "csrc/collective/hierarchy/host_stage.h"
#include "csrc/collective/hierarchy/host_sums.h"
#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/shm/host_page.h"
#include "csrc/collective/shm/tensor_places.h"
#include "csrc/comm/host/arena.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/fake_mpi.h"
#include "csrc/testing/local_host_group.h"
#include "csrc/testing/local_transport.h"
#include "csrc/testing/partly_in_arena.h"
#include "csrc/testing/test_links.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/mpi_group.h"
#include "tests/cpp/comm/tcp_group.h"

namespace keras_ring {
namespace {

// The hosts of the ranks, a letter each.
using Hosts = std::string;

Placement PlacementOf(const Hosts& hosts) {
  std::vector<std::string> host_ids;
  for (char host : hosts) host_ids.emplace_back(1, host);
  return Placement(host_ids);
}

// By rank. `arenas`: of all ranks, or none.
std::vector<std::shared_ptr<const HostGroup>> GroupsOn(
    const Placement& placement, const HostStageOptions& options,
    const std::vector<std::shared_ptr<const SharedMemory>>& arenas = {}) {
  std::vector<std::shared_ptr<const HostGroup>> groups(placement.num_ranks());
  for (int host = 0; host < placement.num_hosts(); ++host) {
    const std::vector<int>& ranks = placement.ranks(host);
    HostGroupLayout layout;
    layout.data_bytes =
        HostSlots::DataBytes(static_cast<int>(ranks.size()), options);
    std::vector<std::shared_ptr<const SharedMemory>> of_ranks;
    for (int rank : ranks) {
      if (!arenas.empty()) of_ranks.push_back(arenas[rank]);
    }
    auto of_host = CreateLocalHostGroups(ranks, layout, of_ranks);
    for (size_t i = 0; i < ranks.size(); ++i) {
      groups[ranks[i]] = std::move(of_host[i]);
    }
  }
  return groups;
}

std::vector<CollectiveMember> MakeOn(
    const Hosts& hosts, const HierarchicalOptions& options,
    std::vector<std::unique_ptr<Transport>> transports) {
  const Placement placement = PlacementOf(hosts);
  const auto groups = GroupsOn(placement, options.stage);
  std::vector<CollectiveMember> members;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    members.push_back(
        {nullptr, std::make_unique<HierarchicalCollective>(
                      groups[rank], placement, std::move(transports[rank]),
                      options, Meter())});
  }
  return members;
}

std::vector<CollectiveMember> MakeOn(const Hosts& hosts,
                                     const HierarchicalOptions& options) {
  return MakeOn(hosts, options,
                CreateLocalTransports(static_cast<int>(hosts.size())));
}

struct ArenaFoundation {
  SystemClock clock;
  std::shared_ptr<Arena> arena;
  std::unique_ptr<HierarchicalCollective> collective;
};

// Tensors lie in arenas, some of them.
std::vector<CollectiveMember> MakeDirect(const Hosts& hosts,
                                         const HierarchicalOptions& options) {
  const Placement placement = PlacementOf(hosts);
  std::vector<std::shared_ptr<ArenaFoundation>> foundations;
  std::vector<std::shared_ptr<const SharedMemory>> memories;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    auto foundation = std::make_shared<ArenaFoundation>();
    auto arena = Arena::Create(size_t{1} << 30, foundation->clock);
    KR_CHECK(arena.ok());
    foundation->arena = std::move(arena).value();
    memories.emplace_back(foundation->arena, &foundation->arena->memory());
    foundations.push_back(std::move(foundation));
  }
  const auto groups = GroupsOn(placement, options.stage, memories);
  auto transports = CreateLocalTransports(static_cast<int>(hosts.size()));
  std::vector<CollectiveMember> members;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    ArenaFoundation& foundation = *foundations[rank];
    // Every other one has another thread: that is nobody else's affair.
    std::unique_ptr<TaskThread> helper;
    if (rank % 2 == 0) {
      auto thread = TaskThread::Start("helper");
      KR_CHECK(thread.ok());
      helper = std::move(thread).value();
    }
    foundation.collective = std::make_unique<HierarchicalCollective>(
        groups[rank], placement, std::move(transports[rank]), options, Meter(),
        std::move(helper));
    auto collective = std::make_unique<PartlyInArena>(
        *foundation.collective, *foundation.arena, static_cast<int>(rank));
    members.push_back({foundations[rank], std::move(collective)});
  }
  return members;
}

HierarchicalOptions Small() {
  HierarchicalOptions options;
  options.stage.part_bytes = 128;
  options.end_bytes = options.min_end_bytes = 64;
  options.one_lane_bytes = 100;
  options.flat.algorithms.links = TestLinks();
  options.flat.max_segment_bytes = kTestSegmentBytes;
  options.flat.fusion_buffer_bytes = kTestBufferBytes;
  options.flat.direct_bytes = kTestDirectBytes;
  return options;
}

Hosts Blocks(int size, int per_host) {
  Hosts hosts;
  for (int rank = 0; rank < size; ++rank) {
    hosts += static_cast<char>('a' + rank / per_host);
  }
  return hosts;
}

Hosts Cyclic(int size, int num_hosts) {
  Hosts hosts;
  for (int rank = 0; rank < size; ++rank) {
    hosts += static_cast<char>('a' + rank % num_hosts);
  }
  return hosts;
}

// The ranks of each host, the hosts of each group, the groups of each group.
std::vector<GroupsOfLevel> LevelsOf(const Placement& placement,
                                    const HierarchicalOptions& options) {
  const int num_hosts = placement.num_hosts();
  GroupsOfLevel groups;
  std::vector<int> firsts;  // the first host of each group
  for (int host = 0; host < num_hosts; ++host) {
    groups.push_back(placement.ranks(host));
    firsts.push_back(host);
  }
  std::vector<GroupsOfLevel> levels = {groups};
  for (size_t level = 0;; ++level) {
    groups.clear();
    std::vector<int> next;
    for (int host : firsts) {
      const Group group =
          PlanLevels(host, num_hosts, GroupSide(num_hosts, options))[level];
      if (group.is_top) return levels;
      if (group.index > 0) continue;
      next.push_back(host);
      groups.emplace_back();
      for (int member : group.ranks) {
        groups.back().push_back(static_cast<int>(
            std::find(firsts.begin(), firsts.end(), member) - firsts.begin()));
      }
    }
    levels.push_back(groups);
    firsts = next;
  }
}

using Make = std::function<std::vector<CollectiveMember>(
    const Hosts&, const HierarchicalOptions&)>;

// On the hosts that hosts_of(size) names.
CollectiveFactory On(
    const std::string& name, const HierarchicalOptions& options,
    const std::function<Hosts(int)>& hosts_of,
    const Make& make_on = [](const Hosts& hosts,
                             const HierarchicalOptions& all) {
      return MakeOn(hosts, all);
    }) {
  const auto make = [options, hosts_of, make_on](int size) {
    return make_on(hosts_of(size), options);
  };
  const auto levels = [hosts_of, options](int size) {
    return LevelsOf(PlacementOf(hosts_of(size)), options);
  };
  // Of the last rank: one of its host, or, if it is alone, those of its group.
  const auto neighbours = [hosts_of, options](int size) -> std::vector<int> {
    const Placement placement = PlacementOf(hosts_of(size));
    const int last = size - 1;
    std::vector<int> ranks = placement.ranks(placement.host(last));
    ranks.pop_back();
    if (!ranks.empty()) return {ranks.back()};
    const int hosts = placement.num_hosts();
    const Group group =
        PlanLevels(placement.host(last), hosts, GroupSide(hosts, options))
            .front();
    for (int host : group.ranks) {
      if (host != placement.host(last)) {
        ranks.push_back(placement.ranks(host).front());
      }
    }
    return ranks;
  };
  return {name, make, levels, neighbours};
}

CollectiveFactory OnBlocks() {
  return On("blocks", Small(), [](int size) { return Blocks(size, 2); });
}

CollectiveFactory OnCyclic() {
  HierarchicalOptions options = Small();
  options.flat.max_exchange_ranks = 1;
  options.flat.algorithms.allreduce = Preference::kFewBytes;
  return On("cyclic", options, [](int size) { return Cyclic(size, 3); });
}

// Groups of hosts, and groups of these; the last groups are smaller.
CollectiveFactory OnGroups() {
  HierarchicalOptions options = Small();
  options.max_hosts = 1;
  options.group_side = 2;
  options.flat.max_exchange_ranks = 1;
  return On("groups", options, [](int size) { return Blocks(size, 1); });
}

CollectiveFactory OnGroupsOfHosts() {
  HierarchicalOptions options = Small();
  options.max_hosts = 1;
  options.group_side = 3;
  options.flat.max_exchange_ranks = 1;
  options.flat.algorithms.allreduce = Preference::kFewBytes;
  return On("groups_of_hosts", options,
            [](int size) { return Cyclic(size, (size + 1) / 2 + 1); });
}

// Tensors are read where they lie, on hosts of three ranks, and on more hosts.
CollectiveFactory Direct() {
  HierarchicalOptions options = Small();
  options.direct_bytes = 0;
  options.helper_bytes = 0;
  return On(
      "direct", options, [](int size) { return Blocks(size, 3); }, MakeDirect);
}

CollectiveFactory DirectCyclic() {
  HierarchicalOptions options = Small();
  options.direct_bytes = 0;
  options.helper_bytes = 0;
  options.flat.algorithms.allreduce = Preference::kFewBytes;
  return On(
      "direct_cyclic", options, [](int size) { return Cyclic(size, 3); },
      MakeDirect);
}

CollectiveFactory Usual() {
  return On("usual", HierarchicalOptions(),
            [](int size) { return Blocks(size, (size + 1) / 2); });
}

INSTANTIATE_TEST_SUITE_P(
    Hierarchy, CollectiveConformance,
    testing::Combine(testing::Values(OnBlocks(), OnCyclic(), Usual(),
                                     OnGroups(), OnGroupsOfHosts()),
                     testing::Values(3, 4, 7)),
    CollectiveConformance::Name);

// Hosts of three, three and one, and of three, two and two.
INSTANTIATE_TEST_SUITE_P(Direct, CollectiveConformance,
                         testing::Combine(testing::Values(Direct(),
                                                          DirectCyclic()),
                                          testing::Values(7)),
                         CollectiveConformance::Name);

// Whose sum depends on the order.
std::vector<std::vector<float>> RandomValues(int size, int count) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<std::vector<float>> values(size);
  for (auto& of_rank : values) {
    for (int i = 0; i < count; ++i) {
      of_rank.push_back(std::exp(4 * normal(random)) * normal(random));
    }
  }
  return values;
}

// In few hops and in few bytes. values[rank].
void ExpectSumsBothWays(const Hosts& hosts, HierarchicalOptions options,
                        const std::vector<std::vector<float>>& values,
                        const std::vector<float>& expected) {
  const int size = static_cast<int>(hosts.size());
  for (Preference way : {Preference::kFewHops, Preference::kFewBytes}) {
    options.flat.algorithms.allreduce = way;
    auto members = MakeOn(hosts, options);
    auto results = values;
    RunRanks(size, [&](int rank) {
      AllreduceArgs args;
      args.tensors.push_back({results[rank].data(), results[rank].data(),
                              static_cast<int64_t>(expected.size())});
      const Status status =
          CollectiveCalls(*members[rank].collective).Allreduce(args);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(results[rank], expected);
    });
  }
}

// To the last bit: the ranks of each host in their order, then the hosts.
TEST(HierarchicalCollectiveTest, FloatsAreSummedInTheStatedOrder) {
  const Hosts hosts = "abacbbc";
  const int size = static_cast<int>(hosts.size());
  constexpr int kCount = 1000;
  const auto values = RandomValues(size, kCount);
  std::vector<float> expected;
  for (int i = 0; i < kCount; ++i) {
    const float a = values[0][i] + values[2][i];
    const float b = values[1][i] + values[4][i] + values[5][i];
    const float c = values[3][i] + values[6][i];
    expected.push_back(a + b + c);
  }
  ExpectSumsBothWays(hosts, Small(), values, expected);
}

// Those of the groups of hosts, too.
TEST(HierarchicalCollectiveTest, FloatsAreSummedByGroups) {
  const Hosts hosts = "aabcdefg";
  const int size = static_cast<int>(hosts.size());
  constexpr int kCount = 1000;
  const auto values = RandomValues(size, kCount);
  std::vector<float> expected;
  for (int i = 0; i < kCount; ++i) {
    const auto value = [&](int rank) { return values[rank][i]; };
    const float first = (value(0) + value(1)) + value(2) + value(3);
    const float second = value(4) + value(5);
    const float third = value(6) + value(7);
    expected.push_back(first + second + third);
  }
  HierarchicalOptions options = Small();
  options.max_hosts = 1;
  options.group_side = 2;
  ExpectSumsBothWays(hosts, options, values, expected);
}

// With the usual options.
TEST(HierarchicalCollectiveTest, MoreHostsThanCanAllTalkToEachOther) {
  constexpr int kSize = 40;
  const Hosts hosts = Blocks(kSize, 1);
  const HierarchicalOptions options;
  const Placement placement = PlacementOf(hosts);
  auto members = MakeOn(hosts, options);
  RunRanks(kSize, [&](int rank) {
    EXPECT_LE(HierarchicalPeers(placement, rank, options).size(), 14u);
    CollectiveCalls calls(*members[rank].collective);
    for (int64_t count : {1, 1000, 100001}) {
      std::vector<int64_t> values(count);
      for (int64_t i = 0; i < count; ++i) values[i] = rank * 1000 + i;
      AllreduceArgs args;
      args.dtype = DType::kInt64;
      args.tensors.push_back({values.data(), values.data(), count});
      const Status status = calls.Allreduce(args);
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(values[i], 1000 * kSize * (kSize - 1) / 2 + kSize * i);
      }
    }
  });
}

// Of sums that float16 cannot hold, where it holds the average.
TEST(HierarchicalCollectiveTest, AveragesDoNotOverflowOnTheWay) {
  for (const Hosts& hosts : {Hosts("aabb"), Hosts("aabbcdefgh")}) {
    const int size = static_cast<int>(hosts.size());
    HierarchicalOptions options = Small();
    options.max_hosts = 2;
    options.group_side = 2;
    auto members = MakeOn(hosts, options);
    RunRanks(size, [&](int rank) {
      std::vector<float> values(500, 60000.0f);
      AllreduceArgs args;
      args.compression = Compression::kFloat16;
      args.op = ReduceOp::kAverage;
      args.divisor = size;
      args.tensors.push_back({values.data(), values.data(), 500});
      ASSERT_TRUE(
          CollectiveCalls(*members[rank].collective).Allreduce(args).ok());
      EXPECT_EQ(values, std::vector<float>(500, 60000.0f));
    });
  }
}

// Of all kinds, with other placements, groups and sizes each time. Sums are
// exact.
TEST(HierarchicalCollectiveTest, AnyPlacement) {
  std::mt19937_64 random(20261124);
  const auto below = [&random](int64_t n) {
    return static_cast<int64_t>(random() % n);
  };
  for (int trial = 0; trial < 25; ++trial) {
    const int size = 2 + static_cast<int>(below(8));
    const int64_t max_hosts = 2 + below(size - 1);
    Hosts hosts = "ab";
    while (static_cast<int>(hosts.size()) < size) {
      hosts += static_cast<char>('a' + below(max_hosts));
    }
    std::shuffle(hosts.begin(), hosts.end(), random);
    HierarchicalOptions options = Small();
    options.stage.part_bytes = 64 << below(9);
    options.stage.depth = 1 + below(8);
    options.end_bytes = 64 << below(6);
    options.min_end_bytes = 64 << below(3);
    options.one_lane_bytes = below(2000);
    options.max_hosts = 1 + static_cast<int>(below(9));
    options.group_side = 2 + static_cast<int>(below(3));
    options.flat.algorithms.links.latency = static_cast<double>(below(2000));
    if (below(3) > 0) options.flat.max_exchange_ranks = 1;
    SCOPED_TRACE(testing::Message()
                 << "trial " << trial << ": " << hosts << ", parts of "
                 << options.stage.part_bytes << ", at the ends "
                 << options.end_bytes << " and " << options.min_end_bytes
                 << ", depth " << options.stage.depth << ", one lane up to "
                 << options.one_lane_bytes << ", most hosts "
                 << options.max_hosts << ", side " << options.group_side
                 << ", latency " << options.flat.algorithms.links.latency
                 << ", most linked " << options.flat.max_exchange_ranks);
    // values[rank][i], the blocks of all ranks one after the other.
    std::vector<int64_t> counts(size);
    std::vector<int64_t> begins = {0};
    for (int64_t& count : counts) {
      count = below(4) == 0 ? 0 : below(5000);
      begins.push_back(begins.back() + count);
    }
    const int64_t total = begins.back();
    std::vector<std::vector<float>> values(size, std::vector<float>(total));
    std::vector<float> sums(total);
    for (auto& of_rank : values) {
      for (int64_t i = 0; i < total; ++i) {
        of_rank[i] = static_cast<float>(below(1000));
        sums[i] += of_rank[i];
      }
    }
    const int root = static_cast<int>(below(size));
    auto members = MakeOn(hosts, options);
    RunRanks(size, [&](int rank) {
      CollectiveCalls calls(*members[rank].collective);
      const auto block_of = [&](const std::vector<float>& row, int of) {
        return std::vector<float>(row.begin() + begins[of],
                                  row.begin() + begins[of + 1]);
      };

      std::vector<float> reduced = values[rank];
      AllreduceArgs allreduce;
      allreduce.tensors.push_back({reduced.data(), reduced.data(), total});
      ASSERT_TRUE(calls.Allreduce(allreduce).ok());
      EXPECT_EQ(reduced, sums);

      std::vector<float> sent(total);
      BroadcastArgs broadcast;
      broadcast.root = root;
      broadcast.tensors.push_back(
          {values[rank].data(), sent.data(),
           static_cast<int64_t>(total * sizeof(float))});
      ASSERT_TRUE(calls.Broadcast(broadcast).ok());
      EXPECT_EQ(sent, values[root]);

      std::vector<float> gathered(total);
      const std::vector<float> own = block_of(values[rank], rank);
      AllgatherArgs allgather;
      allgather.input = own.data();
      allgather.output = gathered.data();
      for (int64_t count : counts) {
        allgather.bytes_per_rank.push_back(count * sizeof(float));
      }
      ASSERT_TRUE(calls.Allgather(allgather).ok());
      for (int of = 0; of < size; ++of) {
        EXPECT_EQ(block_of(gathered, of), block_of(values[of], of))
            << "block " << of;
      }

      std::vector<float> scattered(counts[rank]);
      ReducescatterArgs reducescatter;
      reducescatter.input = values[rank].data();
      reducescatter.output = scattered.data();
      reducescatter.count_per_rank = counts;
      ASSERT_TRUE(calls.Reducescatter(reducescatter).ok());
      EXPECT_EQ(scattered, block_of(sums, rank));

      std::vector<float> exchanged(counts[rank] * size);
      AlltoallArgs alltoall;
      alltoall.input = values[rank].data();
      alltoall.output = exchanged.data();
      alltoall.size = size;
      alltoall.bytes = [&counts](int, int to) {
        return counts[to] * sizeof(float);
      };
      std::vector<float> expected;
      for (int from = 0; from < size; ++from) {
        const std::vector<float> block = block_of(values[from], rank);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      const Status status = calls.Alltoall(alltoall);
      ASSERT_TRUE(status.ok()) << "rank " << rank << ": " << status.ToString();
      EXPECT_EQ(exchanged, expected);
      // What comes next uses the same slots.
      ASSERT_TRUE(calls.Allreduce(allreduce).ok());
    });
    if (HasFailure()) return;
  }
}

// Many calls of five ranks, on the given transports.
void ReduceOften(std::vector<std::unique_ptr<Transport>> transports) {
  constexpr int kCalls = 200;
  const int size = static_cast<int>(transports.size());
  auto members = MakeOn("aabab", Small(), std::move(transports));
  RunRanks(size, [&](int rank) {
    CollectiveCalls calls(*members[rank].collective);
    for (int i = 0; i < kCalls; ++i) {
      // One lane and several, one chunk and several.
      const int count = 1 << i % 10;
      std::vector<float> values(count, static_cast<float>(rank + i));
      AllreduceArgs args;
      args.tensors.push_back({values.data(), values.data(), count});
      const Status status = calls.Allreduce(args);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(values, std::vector<float>(count, 10.0f + size * i));
    }
  });
}

// Ranks that do not spin sleep on connections and on what their host does, at
// once. A wake-up that is missed costs half a second.
TEST(HierarchicalCollectiveTest, NoWakeUpIsMissed) {
  Counters counters;
  const TimePoint began = std::chrono::steady_clock::now();
  ReduceOften(
      NewTcpGroup(ConnectedMesh(5), std::chrono::seconds(30), counters));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
}

// The stages of the two ranks of host "a" of "aab", of which the first has the
// only lane, for one tensor that is reduced in place.
class TwoStages {
 public:
  // `helper`: of the second.
  explicit TwoStages(TaskThread* helper = nullptr) {
    for (int rank = 0; rank < 3; ++rank) {
      auto arena = Arena::Create(size_t{1} << 30, clock_);
      KR_CHECK(arena.ok());
      arenas_.push_back(std::move(arena).value());
      memories_.emplace_back(arenas_.back(), &arenas_.back()->memory());
    }
    groups_ = GroupsOn(PlacementOf("aab"), options_, memories_);
    for (int rank = 0; rank < 2; ++rank) {
      const HostGroup& group = *groups_[rank];
      void* const memory = arenas_[rank]->Allocate(kCount * sizeof(float));
      tensors_.push_back({{memory, memory, kCount}});
      rows_[rank].Assign(tensors_[rank], sizeof(float));
      slots_.emplace_back(group, options_);
      barriers_.emplace_back(HostPage::Progress(group), group.global_ranks(),
                             rank, ChunkBarrierOptions(), Meter());
      places_.emplace_back(group, HostPage::Tables(group));
      places_[rank].Publish(tensors_[rank]);
      stages_.emplace_back(group, slots_[rank], barriers_[rank], rows_[rank],
                           sums_, parts_, &places_[rank], /*first_chunk=*/1,
                           Meter(), rank == 1 ? helper : nullptr);
    }
    // Both tell of their tensors.
    for (HostStage& stage : stages_) stage.Advance();
  }

  HostStage& operator[](int rank) { return stages_[rank]; }
  ChunkBarrier& barrier(int rank) { return barriers_[rank]; }
  // The first sums what both have.
  bool Reduce() {
    stages_[0].StartReduce(0, reinterpret_cast<char*>(of_host_.data()));
    return stages_[0].HasReduced(0);
  }

 private:
  static constexpr int64_t kCount = 32;
  SystemClock clock_;
  const HostStageOptions options_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::vector<std::shared_ptr<const SharedMemory>> memories_;
  std::vector<std::shared_ptr<const HostGroup>> groups_;
  HostSums sums_{Reduction(), {2}};
  const StageParts parts_ =
      StageParts::Even(kCount, /*lanes=*/1, sizeof(float), options_.part_bytes);
  std::vector<std::vector<TensorSpan>> tensors_;
  std::deque<Spans> rows_ = std::deque<Spans>(2);
  std::deque<HostSlots> slots_;
  std::deque<ChunkBarrier> barriers_;
  std::deque<TensorPlaces> places_;
  std::deque<HostStage> stages_;
  std::vector<float> of_host_ = std::vector<float>(kCount);
};

// Fault: a rank gives its tensors up while another sums them. Another host
// could not tell, so the sums are not for it.
TEST(HostStageTest, NothingIsUsedOfWhoeverHasLeft) {
  TwoStages stages;
  ASSERT_TRUE(stages[0].IsReady(0));
  stages.barrier(1).Leave();
  EXPECT_FALSE(stages.Reduce());
  EXPECT_FALSE(stages[0].IsReady(0));
  const Status status = stages[0].Check();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos);
}

// Fault: what ends a wait comes after a rank has looked for it and before it
// sleeps. Nobody rings for who is awake, so it must not fall asleep.
TEST(HostStageTest, WhoHasLeftIsSeenBeforeItSleeps) {
  TwoStages stages;
  stages[0].Look();
  ASSERT_TRUE(stages[0].Check().ok());
  stages.barrier(1).Leave();
  EXPECT_TRUE(stages[0].Happened());
  EXPECT_FALSE(stages[0].Arm());
  EXPECT_FALSE(stages[0].Check().ok());
  // Once it was seen, there is nothing new.
  stages[0].Look();
  ASSERT_TRUE(stages[0].Arm());
  stages[0].Disarm();
}

TEST(HostStageTest, AnAbortIsSeenBeforeItSleeps) {
  TwoStages stages;
  stages[0].Look();
  ASSERT_TRUE(stages[0].Check().ok());
  const Status cause = AbortedError("the test says so");
  stages.barrier(0).Abort(cause);
  EXPECT_TRUE(stages[0].Happened());
  EXPECT_FALSE(stages[0].Arm());
  EXPECT_EQ(stages[0].Check(), cause);
}

// Its other thread ends between a look and the next: who has not said that it
// has read all must not go, for the first waits to hear it.
TEST(HostStageTest, WhoHasReadAllSaysSoBeforeItEnds) {
  auto thread = TaskThread::Start("helper");
  ASSERT_TRUE(thread.ok());
  std::promise<void> may_go_on;
  (*thread)->Push([&may_go_on] { may_go_on.get_future().wait(); });
  TwoStages stages(thread->get());
  ASSERT_TRUE(stages.Reduce());
  stages[0].Done(0);
  stages[0].Advance();
  stages[1].Look();
  stages[1].Advance();
  may_go_on.set_value();
  while (!stages[1].Happened()) std::this_thread::yield();
  EXPECT_FALSE(stages[1].finished());
  EXPECT_FALSE(stages[0].finished());
  stages[1].Advance();
  EXPECT_TRUE(stages[1].finished());
  EXPECT_TRUE(stages[0].finished());
}

TEST(HierarchicalCollectiveTest, OverMpi) {
  Counters counters;
  ReduceOften(
      NewMpiGroup(CreateFakeMpiPorts(5), std::chrono::seconds(30), counters));
}

}  // namespace
}  // namespace keras_ring
