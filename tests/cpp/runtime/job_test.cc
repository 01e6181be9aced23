// Jobs as CreateJob makes them, of threads that take one another for processes
// of several hosts.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/collective/hierarchy/hierarchical_collective.h"
#include "csrc/comm/net/socket.h"
#include "csrc/runtime/runtime_factory.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/runtime_cluster.h"

namespace keras_ring {
namespace {

class JobTest : public testing::Test {
 protected:
  JobTest() { listener_ = std::move(Listen("127.0.0.1", 0)).value(); }

  // hosts[rank].
  Result<std::shared_ptr<ProcessSets>> Start(
      int rank, const std::vector<std::string>& hosts,
      Options options = Options()) {
    options.rank = rank;
    options.size = static_cast<int>(hosts.size());
    options.host_id = hosts[rank];
    options.rendezvous_host = "127.0.0.1";
    options.rendezvous_port = *LocalPort(listener_);
    if (rank == 0) options.rendezvous_fd = listener_.fd();
    options.job_key = std::string(64, 'a');
    options.flight_directory = "off";
    return CreateJob(options, {}, nullptr);
  }

  Socket listener_;
};

// Of values that add up exactly, in sizes for one lane and for all.
void ExpectSums(Runtime& runtime, int rank, int size) {
  for (size_t count : {1, 1000, 300000}) {
    FloatOperation sum;
    for (size_t i = 0; i < count; ++i) {
      sum.input.push_back(static_cast<float>(rank + i % 100));
    }
    const std::string name = "sum of " + std::to_string(count);
    ASSERT_TRUE(EnqueueSum(runtime, name, sum).ok());
    const Status status = Await(sum);
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < count; ++i) {
      const size_t of_ranks = size * (size - 1) / 2;
      ASSERT_EQ(sum.output[i], static_cast<float>(of_ranks + size * (i % 100)));
    }
  }
}

// More than can all have connections with each other, most of one rank.
TEST_F(JobTest, ManyHosts) {
  for (bool several : {false, true}) {
    SCOPED_TRACE(several ? "a host of several ranks" : "hosts of one rank");
    std::vector<std::string> hosts;
    for (int host = 0; host < (several ? 66 : 34); ++host) {
      hosts.push_back(std::to_string(host));
    }
    if (several) hosts.insert(hosts.begin() + 5, {"3", "3"});
    const int size = static_cast<int>(hosts.size());
    RunRanks(size, [&](int rank) {
      auto job = Start(rank, hosts);
      ASSERT_TRUE(job.ok()) << job.status().ToString();
      Runtime& runtime = *(*job)->job();
      EXPECT_NE(dynamic_cast<HierarchicalCollective*>(
                    runtime.deps().collective.get()),
                nullptr);
      ExpectSums(runtime, rank, size);
      (*job)->Shutdown("");
    });
  }
}

// What the options say arrives at the collective, with several ranks on a host
// and without.
TEST_F(JobTest, AlgorithmsAreThoseOfTheOptions) {
  const std::pair<const char*, const char*> cases[] = {
      {"auto", "5 ranks on"},
      {"halving_doubling", "groups of up to 2, and of these of up to 2"},
      {"tree", "groups of up to 2, and of these of up to 2"},
      {"ring", "a ring of 5 ranks"}};
  for (const auto& each : cases) {
    Options options;
    options.allreduce = each.first;
    const std::string expected = each.second;
    const std::vector<std::string> hosts = {"a", "b", "c", "d", "a"};
    RunRanks(5, [&](int rank) {
      auto job = Start(rank, hosts, options);
      ASSERT_TRUE(job.ok()) << job.status().ToString();
      Runtime& runtime = *(*job)->job();
      EXPECT_NE(runtime.Explain()->find(expected), std::string::npos)
          << *runtime.Explain();
      ExpectSums(runtime, rank, 5);
      (*job)->Shutdown("");
    });
  }
}

// The hosts of a process set have other lanes than those of the job.
TEST_F(JobTest, ASetOverHostsOfSeveralRanks) {
  const std::vector<std::string> hosts = {"a", "a", "a", "b", "b", "c", "b"};
  RunRanks(7, [&](int rank) {
    auto sets = Start(rank, hosts);
    ASSERT_TRUE(sets.ok()) << sets.status().ToString();
    const Result<uint32_t> number = (*sets)->Add({1, 2, 3, 4, 6});
    ASSERT_TRUE(number.ok()) << number.status().ToString();
    const int local = (*sets)->Find(*number)->Local(rank);
    if (local >= 0) {
      auto runtime = (*sets)->RuntimeOf(*number);
      ASSERT_TRUE(runtime.ok()) << runtime.status().ToString();
      ExpectSums(**runtime, local, 5);
    }
    ExpectSums(*(*sets)->job(), rank, 7);
    (*sets)->Shutdown("");
  });
}

}  // namespace
}  // namespace keras_ring
