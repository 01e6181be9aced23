#include "csrc/collective/net/levels_alltoall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/collective/net/levels.h"

namespace keras_ring {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

using Pair = std::pair<int, int>;

// All ranks, each with its steps, as a network would run them: a step begins
// when the one before has ended.
class Network {
 public:
  Network(int size, int side) : held_(size), at_(size) {
    for (int rank = 0; rank < size; ++rank) {
      steps_.push_back(PlanAlltoall(rank, size, side));
      for (int to = 0; to < size; ++to) held_[rank].insert({rank, to});
      Send(rank);
    }
  }

  // Until nothing can happen.
  void Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < steps_.size(); ++rank) {
        while (at_[rank] < steps_[rank].size() && Receive(rank)) {
          moved = true;
          if (++at_[rank] < steps_[rank].size()) Send(rank);
        }
      }
    }
  }
  bool all_ended() const {
    for (size_t rank = 0; rank < steps_.size(); ++rank) {
      if (at_[rank] < steps_[rank].size()) return false;
    }
    return true;
  }
  bool all_links_empty() const {
    for (const auto& [ends, parcels] : links_) {
      if (!parcels.empty()) return false;
    }
    return true;
  }
  const std::set<Pair>& held(int rank) const { return held_[rank]; }
  const std::vector<AlltoallStep>& steps(int rank) const {
    return steps_[rank];
  }

 private:
  void Send(int rank) {
    for (const AlltoallStep::Move& move : steps_[rank][at_[rank]].sends) {
      for (const Parcel& parcel : move.parcels) {
        EXPECT_EQ(held_[rank].erase({parcel.from, parcel.to}), 1u)
            << rank << " sends what it has not: " << parcel.from << " to "
            << parcel.to;
        links_[{rank, move.peer}].push_back(parcel);
      }
    }
  }
  // What the step of `rank` awaits, if it has all been sent.
  bool Receive(int rank) {
    const AlltoallStep& step = steps_[rank][at_[rank]];
    for (const AlltoallStep::Move& move : step.receives) {
      if (links_[{move.peer, rank}].size() < move.parcels.size()) return false;
    }
    for (const AlltoallStep::Move& move : step.receives) {
      std::deque<Parcel>& link = links_[{move.peer, rank}];
      for (const Parcel& parcel : move.parcels) {
        EXPECT_EQ(link.front(), parcel);
        held_[rank].insert({parcel.from, parcel.to});
        link.pop_front();
      }
    }
    return true;
  }

  std::vector<std::vector<AlltoallStep>> steps_;
  std::vector<std::set<Pair>> held_;
  std::vector<size_t> at_;
  std::map<Pair, std::deque<Parcel>> links_;
};

void Check(int size, int side) {
  SCOPED_TRACE(testing::Message() << size << " ranks, side " << side);
  Network network(size, side);
  network.Run();
  ASSERT_TRUE(network.all_ended());
  EXPECT_TRUE(network.all_links_empty());
  for (int rank = 0; rank < size; ++rank) {
    std::set<Pair> expected;
    for (int from = 0; from < size; ++from) expected.insert({from, rank});
    EXPECT_EQ(network.held(rank), expected);
    std::set<int> peers;
    for (const Group& group : PlanLevels(rank, size, side)) {
      peers.insert(group.ranks.begin(), group.ranks.end());
    }
    for (const AlltoallStep& step : network.steps(rank)) {
      std::set<int> receivers;
      for (const AlltoallStep::Move& move : step.sends) {
        EXPECT_TRUE(peers.count(move.peer) == 1 && move.peer != rank);
        EXPECT_TRUE(receivers.insert(move.peer).second);
      }
    }
  }
}

TEST(LevelsAlltoallTest, EachParcelArrives) {
  for (int size = 1; size <= 40; ++size) {
    for (int side : {2, 3, 4, 7, 32}) Check(size, side);
  }
}

TEST(LevelsAlltoallTest, EachParcelArrivesAtAnySize) {
  std::mt19937 random(5);
  for (int round = 0; round < 12; ++round) {
    const int size = 41 + random() % 160;
    Check(size, 2 + random() % (round % 2 == 0 ? 4 : 20));
  }
}

TEST(LevelsAlltoallTest, OneStepWhereAllAreLinked) {
  const std::vector<AlltoallStep> steps = PlanAlltoall(1, 3, 32);
  ASSERT_THAT(steps, SizeIs(1));
  ASSERT_THAT(steps[0].sends, SizeIs(2));
  // Its successor first.
  EXPECT_EQ(steps[0].sends[0].peer, 2);
  EXPECT_EQ(steps[0].receives[0].peer, 0);
  EXPECT_EQ(steps[0].sends[0].parcels, (std::vector<Parcel>{{1, 2}}));
}

TEST(LevelsAlltoallTest, OneRankSendsNothing) {
  for (const AlltoallStep& step : PlanAlltoall(0, 1, 2)) {
    EXPECT_THAT(step.sends, IsEmpty());
    EXPECT_THAT(step.receives, IsEmpty());
  }
}

TEST(LevelsAlltoallTest, TwoWaysInASquare) {
  size_t sent = 0;
  for (int rank = 0; rank < 16; ++rank) {
    for (const AlltoallStep& step : PlanAlltoall(rank, 16, 4)) {
      for (const auto& move : step.sends) sent += move.parcels.size();
    }
  }
  // 3 of 4 leave the group; of those that do, a quarter is with who takes it,
  // and each is sent once on the level above.
  EXPECT_EQ(sent, 16u * (3 + 12 * 3 / 4 + 12));
}

}  // namespace
}  // namespace keras_ring
