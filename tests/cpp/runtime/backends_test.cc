#include "csrc/runtime/backends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "csrc/collective/shm/shm_collective.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

using ::testing::HasSubstr;

class Backends : public testing::Test {
 protected:
  // The name of the backend, or the message of the error.
  // `hosts`: a letter for the host of each rank.
  std::string Choose(const std::string& collective, const std::string& hosts,
                     const HostGroup* host = nullptr, bool share = true) {
    options_.collective = collective;
    return Choose(DeviceKind::kHost, hosts, host, share);
  }
  std::string ChooseForGpus(const std::string& collective,
                            const std::string& hosts,
                            const HostGroup* host = nullptr) {
    options_.gpu_collective = collective;
    return Choose(DeviceKind::kCuda, hosts, host, /*share=*/true);
  }

  Options options_;

 private:
  std::string Choose(DeviceKind kind, const std::string& hosts,
                     const HostGroup* host, bool share) {
    Options options = options_;
    options.size = static_cast<int>(hosts.size());
    std::vector<std::string> host_ids;
    for (char letter : hosts) host_ids.emplace_back(1, letter);
    const BackendDeps deps{
        options, RankSet(),        host,         host_ids,  share,
        nullptr, Duration::zero(), SystemTime(), counters_, nullptr};
    const Result<const CollectiveBackend*> chosen = ChooseBackend(deps, kind);
    return chosen.ok() ? (*chosen)->name : chosen.status().message();
  }

  Counters counters_;
};

TEST_F(Backends, AChoiceIsANameInTheList) {
  EXPECT_EQ(CollectiveChoices(), "auto, shm, hierarchy, ring or mpi");
  for (const char* name : {"auto", "shm", "hierarchy", "ring", "mpi"}) {
    Options options;
    options.collective = name;
    EXPECT_TRUE(CheckCollectiveChoices(options).ok()) << name;
  }
  for (const char* name : {"", "Ring", "gloo", "ring "}) {
    Options options;
    options.collective = name;
    const Status status = CheckCollectiveChoices(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(),
                HasSubstr("'" + std::string(name) +
                          "': expected auto, shm, hierarchy, ring or mpi"));
  }
}

TEST_F(Backends, AChoiceForGpusIsANameInTheirList) {
  EXPECT_EQ(CollectiveChoices(DeviceKind::kCuda),
            "auto, cuda_ipc, staged or nccl");
  for (const char* name : {"auto", "cuda_ipc", "staged", "nccl"}) {
    Options options;
    options.gpu_collective = name;
    EXPECT_TRUE(CheckCollectiveChoices(options).ok()) << name;
  }
  // The choice for the host is another one.
  for (const char* name : {"", "shm", "NCCL"}) {
    Options options;
    options.gpu_collective = name;
    const Status status = CheckCollectiveChoices(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(),
                HasSubstr("KERAS_RING_GPU_COLLECTIVE is '" + std::string(name) +
                          "': expected auto, cuda_ipc, staged or nccl"));
  }
}

TEST_F(Backends, GpusReadEachOthersMemoryWithinAHost) {
  HostGroupLayout layout;
  const auto groups = CreateLocalHostGroups({0, 1}, layout);
  EXPECT_EQ(ChooseForGpus("auto", "aa", groups[0].get()), "cuda_ipc");
  EXPECT_EQ(ChooseForGpus("staged", "aa", groups[0].get()), "staged");
  EXPECT_EQ(ChooseForGpus("auto", "ab"), "staged");
  EXPECT_EQ(ChooseForGpus("nccl", "ab"), "nccl");
  EXPECT_EQ(ChooseForGpus("auto", "aa"), "staged");
  EXPECT_EQ(ChooseForGpus("auto", std::string(17, 'a')), "staged");
  EXPECT_EQ(ChooseForGpus("auto", "a"), "cuda_ipc");
  EXPECT_EQ(ChooseForGpus("cuda_ipc", "ab"),
            "KERAS_RING_GPU_COLLECTIVE is 'cuda_ipc', but the ranks are on "
            "several hosts; use 'auto'");
  EXPECT_THAT(ChooseForGpus("cuda_ipc", std::string(17, 'a')),
              HasSubstr("there are 17 ranks"));
}

TEST_F(Backends, TheFastestThatIsAvailable) {
  HostGroupLayout layout;
  layout.control_bytes = 64;
  layout.data_bytes = ShmCollective::DataBytes(2, ShmCollectiveOptions());
  const auto groups = CreateLocalHostGroups({0, 1}, layout);
  EXPECT_EQ(Choose("auto", "aa", groups[0].get()), "shm");
  EXPECT_EQ(Choose("shm", "aa", groups[0].get()), "shm");
  EXPECT_EQ(Choose("ring", "aa", groups[0].get()), "ring");
  EXPECT_EQ(Choose("auto", "aa", nullptr, /*share=*/false), "ring");
  // Two of three are on this host, or on the other one.
  EXPECT_EQ(Choose("auto", "aab", groups[0].get()), "hierarchy");
  EXPECT_EQ(Choose("auto", "abb"), "hierarchy");
  EXPECT_EQ(Choose("hierarchy", "aba", groups[0].get()), "hierarchy");
  EXPECT_EQ(Choose("auto", "aab", groups[0].get(), /*share=*/false), "ring");
  EXPECT_EQ(Choose("auto", "abc"), "ring");
  // More than can all talk to each other.
  std::string many;
  for (char host = 1; host <= 32; ++host) many += host;
  EXPECT_EQ(Choose("auto", many), "ring");
  EXPECT_EQ(Choose("auto", many + "a"), "hierarchy");
}

TEST_F(Backends, WhatCannotBeIsAnError) {
  EXPECT_EQ(Choose("shm", "abc"),
            "KERAS_RING_COLLECTIVE is 'shm', but the ranks are on several "
            "hosts; use 'auto'");
  EXPECT_EQ(Choose("hierarchy", "abc"),
            "KERAS_RING_COLLECTIVE is 'hierarchy', but each host has one rank; "
            "use 'auto'");
  EXPECT_EQ(Choose("hierarchy", "aa"),
            "KERAS_RING_COLLECTIVE is 'hierarchy', but the ranks are on one "
            "host; use 'auto'");
  EXPECT_EQ(Choose("hierarchy", "aab", nullptr, /*share=*/false),
            "KERAS_RING_COLLECTIVE is 'hierarchy', but there is a host whose "
            "ranks cannot share memory; use 'auto'");
  EXPECT_THAT(Choose("gloo", "ab"),
              HasSubstr("expected auto, shm, hierarchy, ring or mpi"));
}

// Never unasked, for MPI knows less of a lost rank, and encrypts nothing.
TEST_F(Backends, MpiWhereItHasStartedTheRanks) {
  EXPECT_THAT(Choose("mpi", "ab"), HasSubstr("not started by MPI"));
  options_.mpi = "8 1 2 /libmpi.so";
  EXPECT_EQ(Choose("mpi", "ab"), "mpi");
  EXPECT_EQ(Choose("mpi", "aa"), "mpi");
  EXPECT_EQ(Choose("auto", "ab"), "ring");
  options_.deterministic = true;
  EXPECT_EQ(Choose("mpi", std::string(32, 'a')), "mpi");
  EXPECT_THAT(Choose("mpi", std::string(33, 'a')), HasSubstr("round a ring"));
  EXPECT_EQ(Choose("mpi", std::string(33, 'a') + "b"), "mpi");
  options_.tls = true;
  EXPECT_THAT(Choose("mpi", "ab"), HasSubstr("MPI does not encrypt"));
}

TEST_F(Backends, OneRankIsServedWhateverWasChosen) {
  for (const char* name : {"auto", "shm", "hierarchy", "ring", "mpi"}) {
    EXPECT_EQ(Choose(name, "a"), "ring") << name;
  }
}

TEST_F(Backends, WhatReadsArenas) {
  EXPECT_TRUE(MayReadArenas("auto"));
  EXPECT_TRUE(MayReadArenas("shm"));
  EXPECT_FALSE(MayReadArenas("ring"));
}

}  // namespace
}  // namespace keras_ring
