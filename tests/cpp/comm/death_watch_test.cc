#include "csrc/comm/host/death_watch.h"

#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include "csrc/testing/doomed_thread.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

// Of four ranks of one host: 10 to 13.
class DeathWatchTest : public testing::Test {
 protected:
  static constexpr int kRanks = 4;

  DeathWatchTest() {
    HostGroupLayout layout;
    layout.control_bytes = 64;
    layout.data_bytes = 64;
    groups_ = CreateLocalHostGroups({10, 11, 12, 13}, layout);
    for (const auto& group : groups_) {
      watches_.push_back(std::make_unique<DeathWatch>(*group));
    }
  }

  void Start(int local_rank) {
    ASSERT_TRUE(watches_[local_rank]
                    ->Start([this, local_rank](int rank) {
                      told_[local_rank].set_value(rank);
                    })
                    .ok());
  }

  // Whom that rank has been told of; -1: nobody for a long time.
  int Told(int local_rank) {
    std::future<int> told = told_[local_rank].get_future();
    return told.wait_for(std::chrono::seconds(20)) == std::future_status::ready
               ? told.get()
               : -1;
  }

  LivenessFutex& liveness(int local_rank) {
    return groups_[0]->liveness(local_rank);
  }

  std::vector<std::unique_ptr<HostGroup>> groups_;
  std::promise<int> told_[kRanks];  // set at most once, or it throws
  std::vector<std::unique_ptr<DeathWatch>> watches_;
};

// First the one after it; then, as each leaves because of it, the one after
// that: the same rank, and no other.
TEST_F(DeathWatchTest, EachMeetsTheDeadAndNobodyElse) {
  DoomedThread rank_12(liveness(2));
  for (int local_rank : {0, 1, 3}) Start(local_rank);
  rank_12.Die();
  for (int local_rank : {3, 0, 1}) {
    EXPECT_EQ(Told(local_rank), 12);
    EXPECT_TRUE(watches_[local_rank]->HasDied(12));
    watches_[local_rank]->Leave();
  }
  EXPECT_FALSE(watches_[0]->HasDied(11));
  EXPECT_FALSE(watches_[0]->HasDied(7));  // of another host
  for (const auto& watch : watches_) watch->Stop();
}

TEST_F(DeathWatchTest, WhoDiedBeforeTheStartIsToldOf) {
  DoomedThread(liveness(3)).Die();
  Start(0);
  EXPECT_EQ(Told(0), 13);
}

// In an order in which the one that is waited for always lives on.
TEST_F(DeathWatchTest, StopsWhileTheOthersLive) {
  for (int local_rank = 0; local_rank < kRanks; ++local_rank) {
    Start(local_rank);
  }
  for (const auto& watch : watches_) {
    watch->Stop();
    watch->Stop();
  }
  for (int local_rank = 0; local_rank < kRanks; ++local_rank) {
    EXPECT_EQ(liveness(local_rank).state(), LivenessFutex::State::kLeft);
    // Nobody was told: the promise is still to be kept.
    told_[local_rank].set_value(-1);
  }
}

TEST_F(DeathWatchTest, WhatIsNotStartedEndsToo) {
  watches_[0]->Leave();
  watches_[1]->Stop();
  EXPECT_EQ(liveness(0).state(), LivenessFutex::State::kLeft);
}

}  // namespace
}  // namespace keras_ring
