#include "csrc/collective/net/measure_links.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/mutex.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/tcp_group.h"

namespace keras_ring {
namespace {

class MeasureLinksTest : public DescriptorTest {
 protected:
  Counters counters_;
};

TEST_F(MeasureLinksTest, ALineOfSomeRanks) {
  auto group =
      NewTcpGroup(ConnectedMesh(5), std::chrono::seconds(30), counters_);
  for (const std::vector<int>& line :
       {std::vector<int>{0, 1, 2, 3, 4}, {0, 3, 4}, {1, 2}}) {
    RunRanks(5, [&](int rank) {
      if (std::count(line.begin(), line.end(), rank) == 0) return;
      const TimePoint began = std::chrono::steady_clock::now();
      const Result<LinkModel> links = MeasureLinks(*group[rank], line, Soon());
      const double took = std::chrono::duration<double>(
                              std::chrono::steady_clock::now() - began)
                              .count();
      ASSERT_TRUE(links.ok()) << links.status().ToString();
      EXPECT_GE(links->latency, 1e-6);
      EXPECT_LT(links->latency, took);
      EXPECT_GE(links->byte, 8e-12);
      EXPECT_LT(links->byte * (256 << 10), took);
    });
  }
}

// Fault: a rank does not come. Nothing else watches it at this time.
TEST_F(MeasureLinksTest, EndsAtItsDeadline) {
  auto group =
      NewTcpGroup(ConnectedMesh(2), std::chrono::seconds(300), counters_);
  const Result<LinkModel> links = MeasureLinks(
      *group[0], {0, 1}, Deadline::After(std::chrono::milliseconds(100)));
  EXPECT_EQ(links.status(),
            DeadlineExceededError(
                "the measurement of links could not be done in time"));
}

}  // namespace
}  // namespace keras_ring
