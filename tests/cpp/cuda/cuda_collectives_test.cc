// The collectives of tensors in device memory in the suite of all collectives,
// and what only they do. On a fake device, or on a real one if
// KERAS_RING_TEST_DRIVER is "real".
#include <gmock/gmock.h>

#include <memory>
#include <utility>
#include <vector>

#include "csrc/collective/cuda/cuda_ipc_collective.h"
#include "csrc/collective/cuda/staged_collective.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/cuda/gpu.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

using cuda::Gpu;

constexpr size_t kRegionBytes = size_t{8} << 20;

std::shared_ptr<Gpu> OpenGpu() {
  Result<std::shared_ptr<Gpu>> gpu = Gpu::Open(cuda::TestedDriver(), 0);
  KR_CHECK(gpu.ok());
  return *gpu;
}

struct Foundation {
  Counters counters;
  std::shared_ptr<const HostGroup> group;
  std::unique_ptr<Collective> host;
  cuda::CudaAccess gpus{cuda::TestedDriver()};
  std::shared_ptr<Gpu> gpu;
};

// `ipc`: or through host memory.
std::vector<CollectiveMember> Make(int size, bool ipc, IpcSizes sizes,
                                   size_t skew, bool shareable) {
  ShmCollectiveOptions of_host;
  HostGroupLayout layout;
  const size_t host_bytes =
      RoundUp(ShmCollective::DataBytes(size, of_host), size_t{4096});
  layout.data_bytes = host_bytes + CudaIpcCollective::DataBytes();
  std::vector<CollectiveMember> members;
  for (auto& group : CreateLocalHostGroups(size, layout)) {
    auto foundation = std::make_shared<Foundation>();
    foundation->gpu = OpenGpu();
    foundation->group = std::move(group);
    const int rank = foundation->group->local_rank();
    foundation->host = std::make_unique<ShmCollective>(
        *foundation->group, of_host, foundation->counters);
    CollectiveMember member;
    member.collective = std::make_unique<StagedCollective>(
        rank, size, foundation->gpus, *foundation->host);
    if (ipc) {
      CudaIpcOptions options;
      options.page_offset = host_bytes;
      options.sizes = sizes;
      member.collective = std::make_unique<CudaIpcCollective>(
          foundation->group, foundation->gpus, options,
          Meter(foundation->counters, nullptr), std::move(member.collective));
    }
    Memory& memory = *foundation->gpu;
    cuda::fake::MakeShareable(shareable);
    member.region = std::shared_ptr<DeviceRegion>(
        new DeviceRegion(memory, kRegionBytes, skew),
        [foundation](DeviceRegion* region) { delete region; });
    cuda::fake::MakeShareable(true);
    member.foundation = std::move(foundation);
    members.push_back(std::move(member));
  }
  return members;
}

// Everybody hears of a lost rank: each reads the memory of all.
std::vector<int> AllButTheLast(int size) {
  std::vector<int> ranks(size - 1);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

CollectiveFactory Factory(const char* name, bool ipc, IpcSizes sizes,
                          size_t skew = 0, bool shareable = true) {
  return {name,
          [=](int size) { return Make(size, ipc, sizes, skew, shareable); },
          nullptr, AllButTheLast};
}

INSTANTIATE_TEST_SUITE_P(
    Cuda, CollectiveConformance,
    testing::Combine(
        testing::Values(Factory("staged", false, {}, 0),
                        // Nearly all tensors are read where they are.
                        Factory("direct", true, {64, 0}, 0),
                        Factory("unaligned", true, {64, 0}, 8),
                        // Others cannot open the tensors of a rank (on the
                        // fake; the real driver shares what tests allocate).
                        Factory("hidden", true, {64, 0}, 0, false),
                        // Most are put together.
                        Factory("packed", true, {6000, 100}, 0),
                        // Most calls take one shot.
                        Factory("usual", true, CudaIpcOptions().sizes, 0)),
        testing::ValuesIn(kConformanceSizes)),
    CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
