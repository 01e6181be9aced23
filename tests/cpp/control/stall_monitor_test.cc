#include "csrc/control/stall_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "csrc/testing/controller_cluster.h"

namespace keras_ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kPerHost = 8;

// Three levels of leaders.
std::vector<std::string> ManyHosts() {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < 80 * kPerHost; ++rank) {
    hosts.push_back("host " + std::to_string(rank / kPerHost));
  }
  return hosts;
}

// On each host one rank lacks what the others ask for, so that every leader has
// something to report.
class StallOfManyHosts : public ::testing::Test {
 protected:
  static constexpr int kNames = 20;

  StallOfManyHosts() : cluster_(ManyHosts(), ControllerOptions()) {}

  // From the first rank to the last it takes so long.
  void Ask(Duration time) {
    for (int rank = 0; rank < cluster_.size(); ++rank) {
      cluster_.clock().Advance(time / cluster_.size());
      if (rank % kPerHost == 5) continue;
      for (int i = 0; i < kNames; ++i) {
        cluster_.Submit(rank, AllreduceRequest("w" + std::to_string(i), 8));
      }
    }
    cluster_.Settle();
    before_ = cluster_.traffic_to(0);
  }
  uint64_t Messages() const {
    return cluster_.traffic_to(0).messages - before_.messages;
  }
  uint64_t Bytes() const {
    return cluster_.traffic_to(0).bytes - before_.bytes;
  }

  ControllerCluster cluster_;

 private:
  ControllerCluster::Traffic before_;
};

// The coordinator has eight leaders below it.
TEST_F(StallOfManyHosts, OneReportOfEachLeaderIsEnough) {
  Ask(Duration::zero());
  cluster_.PassTime(seconds(62));
  ASSERT_EQ(cluster_.reports(0).size(), 1u);
  EXPECT_THAT(cluster_.reports(0)[0],
              AllOf(HasSubstr("20 tensors wait"),
                    HasSubstr("missing ranks 5, 13, 21, 29, 37"),
                    HasSubstr("613, 621, 629, 637.")));
  // And the answers of sixteen ranks that were asked what they do.
  EXPECT_LE(Messages(), 8u + 16u);
  EXPECT_LE(Bytes(), 8u * 8192u);
}

// They are not told one by one, either.
TEST_F(StallOfManyHosts, RanksThatComeOneByOneAreTakenTogether) {
  Ask(seconds(8));
  cluster_.PassTime(seconds(72));
  EXPECT_EQ(cluster_.reports(0).size(), 1u);
  // Eight seconds, and the levels on the way.
  EXPECT_LE(Messages(), 8u * 11u + 16u);
}

// Then nothing waits at the coordinator itself.
TEST(StallMonitorTest, WhatWaitsOnlyBelowIsReportedAndFailsInTime) {
  ControllerOptions options;
  options.stalls.check_time = seconds(2);
  options.stalls.shutdown_time = seconds(30);
  ControllerCluster cluster({"a", "a", "b", "b", "c", "c"}, options, 1);
  for (int rank : {2, 4}) cluster.Submit(rank, AllreduceRequest("x", 8));
  cluster.Settle();
  cluster.PassTime(seconds(3));
  ASSERT_EQ(cluster.reports(0).size(), 1u);
  EXPECT_THAT(cluster.reports(0)[0], HasSubstr("missing ranks 0-1, 3, 5."));
  cluster.PassTime(seconds(26));
  // After 2, 6 and 14 seconds.
  EXPECT_EQ(cluster.reports(0).size(), 3u);
  EXPECT_TRUE(cluster.commands(0).empty());
  cluster.PassTime(seconds(2));
  ASSERT_EQ(cluster.commands(5).size(), 1u);
  EXPECT_EQ(std::get<FailCommand>(cluster.commands(5)[0]).status.code(),
            StatusCode::kDeadlineExceeded);
}

// A report that was on its way when the name failed is not of its next use.
TEST(StallMonitorTest, AReportOfAUseThatHasFailedDoesNotCount) {
  ControllerOptions options;
  options.stalls.check_time = seconds(1);
  options.stalls.shutdown_time = milliseconds(1500);
  ControllerCluster cluster({"a", "b", "b"}, options);
  auto ask = [&] {
    for (int rank : {0, 1}) cluster.Submit(rank, AllreduceRequest("x", 8));
    cluster.Settle();
  };
  ask();
  cluster.clock().Advance(milliseconds(1500));
  cluster.Timer(1);  // the report
  cluster.Timer(0);  // fails it
  ASSERT_EQ(cluster.commands(0).size(), 1u);
  cluster.Settle();
  ask();
  cluster.PassTime(milliseconds(900));
  EXPECT_TRUE(cluster.reports(0).empty());
  EXPECT_EQ(cluster.commands(0).size(), 1u);
  cluster.PassTime(seconds(1));
  EXPECT_EQ(cluster.commands(0).size(), 2u);
  EXPECT_TRUE(cluster.error().ok()) << cluster.error().ToString();
}

}  // namespace
}  // namespace keras_ring
