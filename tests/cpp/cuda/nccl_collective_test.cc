// NcclCollective in the suite of all collectives, and what only it does. By the
// fake NCCL on the fake device; with KERAS_RING_TEST_DRIVER=real by the real
// ones, where ranks that share a device are served by its fallback.
#include "csrc/collective/cuda/nccl_collective.h"

#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/collective/cuda/staged_collective.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/cuda/gpu.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/fake_nccl.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using cuda::Gpu;
using cuda::TestedDriver;

Result<const cuda::Nccl*> LoadTested() {
  if (cuda::TestsRealDriver()) return cuda::LoadNccl();
  return &cuda::FakeNccl();
}
Result<const cuda::Nccl*> LoadNone() {
  return FailedPreconditionError("there is no NCCL: no such file");
}

struct Foundation {
  Counters counters;
  std::unique_ptr<HostGroup> group;
  std::unique_ptr<Collective> host;
  cuda::CudaAccess gpus{TestedDriver()};
  std::shared_ptr<Gpu> gpu;
};

// `loaders`: of each rank, the last for all that follow. The ranks have a
// device each in the eyes of NCCL, for the fake one does not mind.
std::vector<CollectiveMember> Make(
    int size, int64_t direct_bytes,
    const std::vector<NcclCollective::Loader>& loaders) {
  const ShmCollectiveOptions of_host;
  HostGroupLayout layout;
  layout.data_bytes = ShmCollective::DataBytes(size, of_host);
  std::vector<CollectiveMember> members;
  for (auto& group : CreateLocalHostGroups(size, layout)) {
    auto foundation = std::make_shared<Foundation>();
    foundation->gpu = Gpu::Open(TestedDriver(), 0).value();
    foundation->group = std::move(group);
    const int rank = foundation->group->local_rank();
    foundation->host = std::make_unique<ShmCollective>(
        *foundation->group, of_host, foundation->counters);
    NcclOptions options;
    options.direct_bytes = direct_bytes;
    options.grace = std::chrono::milliseconds(200);
    const size_t last = loaders.size() - 1;
    CollectiveMember member;
    member.collective = std::make_unique<NcclCollective>(
        rank, size, foundation->gpus,
        loaders[std::min(static_cast<size_t>(rank), last)], options,
        *foundation->host,
        std::make_unique<StagedCollective>(rank, size, foundation->gpus,
                                           *foundation->host));
    member.region = std::shared_ptr<DeviceRegion>(
        new DeviceRegion(*foundation->gpu, size_t{8} << 20, 0),
        [foundation](DeviceRegion* region) { delete region; });
    member.foundation = std::move(foundation);
    members.push_back(std::move(member));
  }
  return members;
}

CollectiveFactory Factory(const char* name, int64_t direct_bytes,
                          NcclCollective::Loader loader) {
  CollectiveFactory factory;
  factory.name = name;
  factory.make = [=](int size) {
    cuda::fake::DistinctDevices(true);
    return Make(size, direct_bytes, {loader});
  };
  // The host's collective is the first to notice.
  factory.neighbours = [](int size) {
    std::vector<int> ranks(size - 1);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  };
  // Before, in NCCL, and after.
  factory.roundings = 3;
  return factory;
}

INSTANTIATE_TEST_SUITE_P(
    Nccl, CollectiveConformance,
    testing::Combine(testing::Values(Factory("direct", 64, LoadTested),
                                     Factory("usual", 256 << 10, LoadTested),
                                     Factory("none", 256 << 10, LoadNone)),
                     testing::ValuesIn(kConformanceSizes)),
    CollectiveConformance::Name);

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::TestsRealDriver()) GTEST_SKIP() << "takes a device per rank";
    cuda::fake::DistinctDevices(true);
  }
  void TearDown() override { cuda::fake::DistinctDevices(true); }

  // A sum of 1 on every rank; returns what it explains afterwards.
  static std::string Sum(std::vector<CollectiveMember>& members) {
    const int size = static_cast<int>(members.size());
    RunRanks(size, [&](int rank) {
      std::vector<float> values(1000, 1.0F);
      AllreduceArgs args;
      args.tag = 1;
      args.tensors.push_back({values.data(), values.data(), 1000});
      CollectiveCalls calls(*members[rank].collective, rank,
                            members[rank].region.get());
      const Status status = calls.Allreduce(args);
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(values, std::vector<float>(1000, 1.0F * size));
    });
    return members.back().collective->Explain();
  }
};

TEST_F(NcclTest, SaysWhatItUses) {
  auto members = Make(2, 64, {LoadTested});
  EXPECT_THAT(members[0].collective->Explain(), HasSubstr("first tensor"));
  EXPECT_EQ(Sum(members), "2 ranks, by NCCL 2.28.9\n");
}

TEST_F(NcclTest, ARankWithoutItIsAReasonForAll) {
  auto members = Make(3, 64, {LoadTested, LoadNone, LoadTested});
  EXPECT_THAT(Sum(members),
              AllOf(HasSubstr("not by NCCL: rank 1: there is no NCCL"),
                    HasSubstr("copied to host memory")));
}

TEST_F(NcclTest, RanksThatShareADeviceDoWithoutIt) {
  cuda::fake::DistinctDevices(false);
  auto members = Make(2, 64, {LoadTested});
  EXPECT_THAT(Sum(members), HasSubstr("rank 1 shares its device"));
}

TEST_F(NcclTest, GivesEverythingBack) {
  const size_t comms = cuda::fake::NumComms();
  const size_t allocations = cuda::fake::NumAllocations();
  const size_t streams = cuda::fake::NumStreams();
  const size_t events = cuda::fake::NumEvents();
  {
    auto members = Make(3, 64, {LoadTested});
    Sum(members);
    // As at the end of a job: all at once.
    RunRanks(3, [&](int rank) { members[rank] = CollectiveMember(); });
  }
  EXPECT_EQ(cuda::fake::NumComms(), comms);
  EXPECT_EQ(cuda::fake::NumAllocations(), allocations);
  EXPECT_EQ(cuda::fake::NumStreams(), streams);
  EXPECT_EQ(cuda::fake::NumEvents(), events);
}

// The others would wait for it for ever.
TEST_F(NcclTest, AnAbortEndsACallInFlight) {
  auto members = Make(2, 64, {LoadTested});
  Sum(members);
  Result<void*> memory = static_cast<Foundation*>(members[0].foundation.get())
                             ->gpu->Allocate(4000);
  ASSERT_TRUE(memory.ok());
  AllreduceArgs args;
  args.tag = 2;
  args.tensors.push_back({*memory, *memory, 1000});
  const CollectiveArgs call = args;
  std::promise<Status> outcome;
  auto future = outcome.get_future();
  members[0].collective->Start(
      call, [&outcome](const Status& status) { outcome.set_value(status); });
  EXPECT_EQ(future.wait_for(std::chrono::milliseconds(50)),
            std::future_status::timeout);
  const Status cause = UnavailableError("lost rank 1");
  members[0].collective->Abort(cause);
  EXPECT_EQ(future.get(), cause);
}

}  // namespace
}  // namespace keras_ring
