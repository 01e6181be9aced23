#include "csrc/testing/timed_controllers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace keras_ring {
namespace {

std::vector<std::string> Hosts(int num_hosts, int per_host) {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < num_hosts * per_host; ++rank) {
    hosts.push_back("host " + std::to_string(rank / per_host));
  }
  return hosts;
}

// Up the tree and down again.
TEST(TimedControllersTest, AnAgreementTakesTheLatenciesOfTheTree) {
  ControlLinks links;
  links.between_hosts = 1;
  links.within_host = 0.001;
  links.message = 0;
  for (auto [num_hosts, latencies] :
       {std::pair{1, 0}, {2, 2}, {9, 2}, {60, 4}}) {
    TimedControllers job(Hosts(num_hosts, 2), links);
    for (int i = 0; i < 2; ++i) {
      const auto agreement = job.Agree({"a", "b"});
      ASSERT_TRUE(agreement.error.ok()) << agreement.error.ToString();
      EXPECT_NEAR(agreement.seconds, latencies, 0.2) << num_hosts;
    }
  }
}

TEST(TimedControllersTest, TheRootSendsLittleHoweverManyRanksThereAre) {
  TimedControllers job(Hosts(64, 8), ControlLinks());
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("tensor " + std::to_string(i));
  TimedControllers::Agreement agreement;
  for (int i = 0; i < 3; ++i) {
    agreement = job.Agree(names);
    ASSERT_TRUE(agreement.error.ok()) << agreement.error.ToString();
  }
  EXPECT_LE(agreement.max_messages, 16);
  EXPECT_LE(agreement.max_bytes, 500);
}

}  // namespace
}  // namespace keras_ring
