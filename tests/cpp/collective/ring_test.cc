#include "csrc/collective/net/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <tuple>

#include "csrc/collective/net/cpu_collective.h"

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<ConstSegment> Sends(const SendReceivePlan& duplex) {
  if (duplex.outgoing.empty()) return {};
  return duplex.outgoing[0].segments;
}

// A whole ring at the level of lists: runs the Duplexes of all ranks at once,
// moving one segment at a time, in a random order.
class RingSimulation {
 public:
  explicit RingSimulation(std::vector<SendReceivePlan>& duplexes)
      : duplexes_(duplexes),
        sent_(duplexes.size()),
        received_(duplexes.size()) {}

  // Returns whether all ranks came to their end.
  bool Run(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (SendReceivePlan& duplex : duplexes_) {
      if (duplex.advance) duplex.advance(duplex);
    }
    while (true) {
      std::vector<std::pair<int, bool>> possible;  // (rank, whether to send)
      for (int r = 0; r < size(); ++r) {
        if (CanSend(r)) possible.emplace_back(r, true);
        if (CanReceive(r)) possible.emplace_back(r, false);
      }
      if (possible.empty()) break;
      const auto [rank, send] = possible[random() % possible.size()];
      if (send)
        Send(rank);
      else
        Receive(rank);
    }
    for (int r = 0; r < size(); ++r) {
      if (sent_[r] != NumSends(duplexes_[r])) return false;
      if (received_[r] != NumReceives(duplexes_[r])) return false;
    }
    return true;
  }

 private:
  int size() const { return static_cast<int>(duplexes_.size()); }

  static size_t NumSends(const SendReceivePlan& duplex) {
    return duplex.outgoing.empty() ? 0 : duplex.outgoing[0].segments.size();
  }
  static size_t NumReceives(const SendReceivePlan& duplex) {
    return duplex.incoming.empty() ? 0 : duplex.incoming[0].segments.size();
  }

  bool CanSend(int rank) const {
    const SendReceivePlan& duplex = duplexes_[rank];
    return sent_[rank] < NumSends(duplex) &&
           sent_[rank] < duplex.outgoing[0].released;
  }
  bool CanReceive(int rank) {
    const SendReceivePlan& duplex = duplexes_[rank];
    return received_[rank] < NumReceives(duplex) &&
           received_[rank] < duplex.incoming[0].allowed &&
           !links_[{duplex.incoming[0].peer, rank}].empty();
  }

  void Send(int rank) {
    Outgoing& outgoing = duplexes_[rank].outgoing[0];
    const ConstSegment& segment = outgoing.segments[sent_[rank]++];
    EXPECT_GT(segment.bytes, 0u);
    links_[{rank, outgoing.peer}].emplace_back(
        static_cast<const char*>(segment.data), segment.bytes);
    outgoing.sent = sent_[rank];
  }

  void Receive(int rank) {
    SendReceivePlan& duplex = duplexes_[rank];
    Incoming& incoming = duplex.incoming[0];
    std::deque<std::string>& link = links_[{incoming.peer, rank}];
    const Segment& segment = incoming.segments[received_[rank]++];
    ASSERT_EQ(link.front().size(), segment.bytes);
    std::memcpy(segment.data, link.front().data(), segment.bytes);
    link.pop_front();
    incoming.received = received_[rank];
    const size_t before =
        duplex.outgoing.empty() ? 0 : duplex.outgoing[0].released;
    duplex.advance(duplex);
    if (duplex.outgoing.empty()) return;
    EXPECT_GE(duplex.outgoing[0].released, before);
  }

  std::vector<SendReceivePlan>& duplexes_;
  std::vector<size_t> sent_;
  std::vector<size_t> received_;
  std::map<std::pair<int, int>, std::deque<std::string>> links_;
};

// Elements that remember of which ranks' values, added in which order, they are
// the sum. An element is a number that names such a list.
class SymbolicSums {
 public:
  int32_t Value(int rank) { return Name({rank}); }

  // The operands are a partial sum and one rank's value, in either order. Two
  // single values are sorted: their sum is commutative.
  int32_t Add(int32_t a, int32_t b) {
    std::vector<int> sum = lists_[a];
    std::vector<int> value = lists_[b];
    if (sum.size() < value.size()) std::swap(sum, value);
    EXPECT_EQ(value.size(), 1u);
    sum.insert(sum.end(), value.begin(), value.end());
    if (sum.size() == 2) std::sort(sum.begin(), sum.end());
    return Name(sum);
  }

  const std::vector<int>& list(int32_t name) const { return lists_[name]; }

 private:
  int32_t Name(const std::vector<int>& list) {
    lists_.push_back(list);
    return static_cast<int32_t>(lists_.size() - 1);
  }

  std::vector<std::vector<int>> lists_;
};

// The order that ring.h states for chunk c: c, c + 1, ...
std::vector<int> StatedOrder(int size, int chunk) {
  std::vector<int> order;
  for (int i = 0; i < size; ++i) order.push_back((chunk + i) % size);
  if (size > 1) std::sort(order.begin(), order.begin() + 2);
  return order;
}

int ChunkOf(int64_t element, int64_t count, int size) {
  int64_t end = 0;
  for (int chunk = 0;; ++chunk) {
    end += count / size + (chunk < count % size ? 1 : 0);
    if (element < end) return chunk;
  }
}

class RingAllreduceTest
    : public testing::TestWithParam<std::tuple<int, int64_t, size_t, bool>> {};

TEST_P(RingAllreduceTest, SumsInTheStatedOrderOnAllRanks) {
  const auto [size, count, segment_bytes, in_place] = GetParam();
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SymbolicSums sums;
    std::vector<std::vector<int32_t>> inputs(size);
    std::vector<std::vector<int32_t>> outputs(size);
    std::vector<std::vector<char>> scratch(size);
    std::vector<RingReduction> plans;
    for (int r = 0; r < size; ++r) {
      for (int64_t i = 0; i < count; ++i) inputs[r].push_back(sums.Value(r));
      outputs[r] = in_place ? inputs[r] : std::vector<int32_t>(count, 0);
      scratch[r].resize(SegmentBytes(sizeof(int32_t), segment_bytes));
      RingBuffer buffer;
      buffer.output = outputs[r].data();
      buffer.input = in_place ? outputs[r].data() : inputs[r].data();
      buffer.count = count;
      buffer.element_size = sizeof(int32_t);
      plans.push_back(PlanRingAllreduce(RingPlace{r, size}, 7, buffer,
                                        scratch[r].data(), segment_bytes));
    }
    std::vector<std::vector<bool>> owned(size, std::vector<bool>(count));
    std::vector<SendReceivePlan> duplexes;
    for (int r = 0; r < size; ++r) {
      SendReceivePlan duplex = plans[r].duplex;
      EXPECT_EQ(duplex.tag, 7u);
      duplex.advance = [&, r](SendReceivePlan& streams) {
        const RingReduction& plan = plans[r];
        if (streams.incoming.empty()) return;
        const size_t received = streams.incoming[0].received;
        if (received == 0) return;
        const size_t i = received - 1;
        if (i < plan.reductions.size()) {
          const SegmentReduction& reduction = plan.reductions[i];
          auto* a = static_cast<int32_t*>(reduction.accumulator);
          auto* b = static_cast<const int32_t*>(reduction.value);
          for (int64_t j = 0; j < reduction.count; ++j) {
            a[j] = sums.Add(a[j], b[j]);
            if (i >= plan.first_owned) {
              owned[r][a + j - outputs[r].data()] = true;
            }
          }
        }
        plan.Release(received, streams);
      };
      duplexes.push_back(duplex);
    }
    ASSERT_TRUE(RingSimulation(duplexes).Run(seed));
    for (int64_t i = 0; size > 1 && i < count; ++i) {
      const int chunk = ChunkOf(i, count, size);
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(sums.list(outputs[r][i]), StatedOrder(size, chunk));
        EXPECT_EQ(owned[r][i], r == (chunk + size - 1) % size);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RingAllreduceTest,
    testing::Combine(testing::Values(1, 2, 3, 4, 7),
                     testing::Values(0, 1, 2, 3, 4, 6, 7, 8, 29, 100),
                     // Less than an element, one, some, all.
                     testing::Values(1, 4, 15, 1000), testing::Bool()));

// The same order; and what is no sum travels in 2 bytes.
TEST_P(RingAllreduceTest, WideSumsTravelAsSuchOnlyWhereTheyMust) {
  const auto [size, count, segment_bytes, unused] = GetParam();
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SymbolicSums sums;
    std::vector<std::vector<int16_t>> values(size);
    std::vector<std::vector<int32_t>> wide(size);
    std::vector<std::vector<char>> scratch(size);
    std::vector<RingReduction> plans;
    for (int r = 0; r < size; ++r) {
      for (int64_t i = 0; i < count; ++i) values[r].push_back(sums.Value(r));
      wide[r].assign(count, -1);
      scratch[r].resize(SegmentBytes(sizeof(int32_t), segment_bytes));
      RingBuffer buffer;
      buffer.input = buffer.output = wide[r].data();
      buffer.count = count;
      buffer.element_size = sizeof(int32_t);
      buffer.values = values[r].data();
      buffer.value_size = sizeof(int16_t);
      plans.push_back(PlanRingAllreduce(RingPlace{r, size}, 7, buffer,
                                        scratch[r].data(), segment_bytes));
    }
    std::vector<SendReceivePlan> duplexes;
    for (int r = 0; r < size; ++r) {
      SendReceivePlan duplex = plans[r].duplex;
      duplex.advance = [&, r](SendReceivePlan& streams) {
        const RingReduction& plan = plans[r];
        if (streams.incoming.empty()) return;
        const size_t received = streams.incoming[0].received;
        if (received == 0) return;
        const size_t i = received - 1;
        if (i < plan.reductions.size()) {
          const SegmentReduction& reduction = plan.reductions[i];
          auto* sum = static_cast<int32_t*>(reduction.accumulator);
          auto* own = static_cast<int16_t*>(reduction.own);
          for (int64_t j = 0; j < reduction.count; ++j) {
            const int32_t value =
                i < plan.first_sum
                    ? static_cast<const int16_t*>(reduction.value)[j]
                    : static_cast<const int32_t*>(reduction.value)[j];
            sum[j] = sums.Add(own[j], value);
            if (i >= plan.first_owned) own[j] = static_cast<int16_t>(sum[j]);
          }
        }
        plan.Release(received, streams);
      };
      duplexes.push_back(duplex);
    }
    ASSERT_TRUE(RingSimulation(duplexes).Run(seed));
    for (int64_t i = 0; size > 1 && i < count; ++i) {
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(sums.list(values[r][i]),
                  StatedOrder(size, ChunkOf(i, count, size)));
      }
    }
    if (size == 1 || count % size != 0) continue;
    for (const SendReceivePlan& duplex : duplexes) {
      size_t bytes = 0;
      for (const ConstSegment& segment : Sends(duplex)) bytes += segment.bytes;
      EXPECT_EQ(bytes,
                count / size *
                    (size * sizeof(int16_t) + (size - 2) * sizeof(int32_t)));
    }
  }
}

// Every rank sends 2 (n - 1) / n of the buffer, which is the least possible.
TEST(RingTest, AllreduceMovesNoMoreThanItMust) {
  constexpr int kSize = 4;
  constexpr int64_t kCount = 1000;
  std::vector<char> buffer(kCount);
  char scratch[64];
  for (int r = 0; r < kSize; ++r) {
    const RingReduction plan = PlanRingAllreduce(
        RingPlace{r, kSize}, 0,
        RingBuffer{buffer.data(), buffer.data(), kCount, 1}, scratch, 64);
    size_t bytes = 0;
    for (const ConstSegment& segment : Sends(plan.duplex)) {
      EXPECT_LE(segment.bytes, 64u);
      bytes += segment.bytes;
    }
    EXPECT_EQ(bytes, 2u * (kSize - 1) * kCount / kSize);
  }
}

// Sizes of which no 32-bit count is right. Nothing is read or written.
TEST(RingTest, CountsAre64Bit) {
  constexpr int64_t kCount = 5'000'000'001;
  constexpr size_t kSegment = size_t{1} << 30;
  char* const base = reinterpret_cast<char*>(uintptr_t{1} << 40);
  for (int r = 0; r < 3; ++r) {
    const RingReduction plan =
        PlanRingAllreduce(RingPlace{r, 3}, 0, RingBuffer{base, base, kCount, 8},
                          nullptr, kSegment);
    size_t bytes = 0;
    const char* end = base;
    for (const ConstSegment& segment : Sends(plan.duplex)) {
      const char* data = static_cast<const char*>(segment.data);
      EXPECT_GE(data, base);
      end = std::max(end, data + segment.bytes);
      bytes += segment.bytes;
    }
    EXPECT_LE(end, base + kCount * 8);
    EXPECT_NEAR(bytes, 8.0 * kCount * 4 / 3, 32);
  }
  const SendReceivePlan gather = PlanRingAllgather(
      RingPlace{0, 2}, 0, base, {size_t{6} << 30, size_t{5} << 30}, kSegment);
  EXPECT_EQ(Sends(gather).size(), 6u);
  const std::vector<Segment>& receives = gather.incoming[0].segments;
  EXPECT_EQ(receives.size(), 5u);
  EXPECT_EQ(receives.back().data, base + (size_t{10} << 30));
}

TEST(RingTest, AllgatherInAnyOrderOfEvents) {
  const std::vector<std::vector<size_t>> cases = {
      {5}, {3, 4}, {0, 9, 2}, {0, 0, 1}, {7, 0, 0, 30}, {0, 0, 0, 0, 0}};
  for (const std::vector<size_t>& bytes_per_rank : cases) {
    const int size = static_cast<int>(bytes_per_rank.size());
    std::string expected;
    for (int r = 0; r < size; ++r) {
      expected += std::string(bytes_per_rank[r], static_cast<char>('a' + r));
    }
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<std::string> outputs(size);
      std::vector<SendReceivePlan> duplexes;
      for (int r = 0; r < size; ++r) {
        for (char c : expected) outputs[r] += c == 'a' + r ? c : '?';
        duplexes.push_back(PlanRingAllgather(RingPlace{r, size}, 7,
                                             outputs[r].data(), bytes_per_rank,
                                             /*max_segment_bytes=*/4));
      }
      ASSERT_TRUE(RingSimulation(duplexes).Run(seed));
      for (int r = 0; r < size; ++r) EXPECT_EQ(outputs[r], expected);
    }
  }
}

TEST(RingTest, BroadcastInAnyOrderOfEvents) {
  const std::string first = "hello";
  const std::string second = "world, this is longer";
  for (int size : {1, 2, 3, 4, 7}) {
    for (int root = 0; root < size; ++root) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        std::vector<std::string> a(size, std::string(first.size(), '?'));
        std::vector<std::string> b(size, std::string(second.size(), '?'));
        std::vector<SendReceivePlan> duplexes;
        for (int r = 0; r < size; ++r) {
          const std::vector<TensorSpan> tensors = {
              {first.data(), a[r].data(), static_cast<int64_t>(a[r].size())},
              {nullptr, nullptr, 0},
              {second.data(), b[r].data(), static_cast<int64_t>(b[r].size())}};
          duplexes.push_back(
              PlanChainBroadcast(RingPlace{r, size}, 7, root, tensors, 4));
        }
        ASSERT_TRUE(RingSimulation(duplexes).Run(seed));
        for (int r = 0; r < size; ++r) {
          if (r == root) continue;  // reads its inputs only
          EXPECT_EQ(a[r], first);
          EXPECT_EQ(b[r], second);
        }
      }
    }
  }
}

TEST(RingTest, HostByHost) {
  EXPECT_THAT(RingOrder({"a", "a", "b"}), ElementsAre(0, 1, 2));
  EXPECT_THAT(RingOrder({"b", "a", "c", "a", "b"}), ElementsAre(0, 4, 1, 3, 2));
  EXPECT_THAT(RingOrder({}), ElementsAre());
  const RingPlace place = RingPlaceOf(3, 5, {0, 4, 1, 3, 2});
  EXPECT_EQ(place.position, 3);
  EXPECT_EQ(place.RankAt(4), 2);
  EXPECT_EQ(RingPlaceOf(3, 5, {}).RankAt(4), 4);
}

// Where each rank sends to one other, and receives from one: of a host's ranks
// at most one has to do with another host, each way.
TEST(RingTest, PeersFollowTheOrder) {
  const std::vector<std::string> hosts = {"a", "b", "a", "c", "b", "a"};
  const std::vector<int> order = RingOrder(hosts);
  const int size = static_cast<int>(hosts.size());
  std::map<std::string, int> leaving;
  for (int rank = 0; rank < size; ++rank) {
    char values[6];
    const SendReceivePlan plan = PlanRingAllgather(
        RingPlaceOf(rank, size, order), 0, values, std::vector<size_t>(size, 1),
        /*max_segment_bytes=*/4);
    ASSERT_EQ(plan.outgoing.size(), 1u);
    if (hosts[plan.outgoing[0].peer] != hosts[rank]) ++leaving[hosts[rank]];
    CpuCollectiveOptions options;
    options.max_exchange_ranks = 1;
    options.ring_order = order;
    EXPECT_THAT(
        CpuCollectivePeers(rank, size, options),
        UnorderedElementsAre(plan.outgoing[0].peer, plan.incoming[0].peer));
  }
  for (const auto& [host, count] : leaving) EXPECT_EQ(count, 1) << host;
}

TEST(RingTest, NothingToSayMeansNoPeers) {
  char byte = 0;
  std::vector<SendReceivePlan> duplexes;
  duplexes.push_back(PlanRingAllreduce(RingPlace{1, 3}, 0,
                                       RingBuffer{&byte, &byte, 0, 4}, &byte, 8)
                         .duplex);
  duplexes.push_back(PlanRingAllreduce(RingPlace{0, 1}, 0,
                                       RingBuffer{&byte, &byte, 1, 1}, &byte, 8)
                         .duplex);
  duplexes.push_back(
      PlanRingAllgather(RingPlace{1, 3}, 0, &byte, {0, 0, 0}, 8));
  duplexes.push_back(PlanRingAllgather(RingPlace{0, 1}, 0, &byte, {1}, 8));
  duplexes.push_back(PlanChainBroadcast(RingPlace{0, 1}, 0, 0,
                                        {TensorSpan{&byte, &byte, 1}}, 8));
  for (const SendReceivePlan& duplex : duplexes) {
    EXPECT_TRUE(duplex.outgoing.empty());
    EXPECT_TRUE(duplex.incoming.empty());
  }
}

}  // namespace
}  // namespace keras_ring
