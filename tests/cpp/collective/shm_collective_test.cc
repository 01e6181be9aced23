// ShmCollective in the suite of all collectives, and what only it does.
#include "csrc/collective/shm_collective.h"

#include <chrono>
#include <random>
#include <thread>

#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

struct ShmFoundation {
  Counters counters;
  std::unique_ptr<HostGroup> group;
};

std::vector<CollectiveMember> MakeShm(int size,
                                      const ShmCollectiveOptions& options) {
  HostGroupLayout layout;
  layout.data_bytes = ShmCollective::DataBytes(size, options);
  std::vector<CollectiveMember> members;
  for (auto& group : CreateLocalHostGroups(size, layout)) {
    auto foundation = std::make_shared<ShmFoundation>();
    foundation->group = std::move(group);
    auto collective = std::make_unique<ShmCollective>(
        *foundation->group, options, foundation->counters);
    members.push_back({std::move(foundation), std::move(collective)});
  }
  return members;
}

// Parts of one cache line, so that nearly everything takes many chunks.
ShmCollectiveOptions SmallParts(Duration spin) {
  ShmCollectiveOptions options;
  options.part_bytes = 64;
  options.one_shot_bytes = 96;
  options.lockstep.spin = spin;
  return options;
}

std::vector<CollectiveMember> MakeSleeping(int size) {
  return MakeShm(size, SmallParts(Duration::zero()));
}
std::vector<CollectiveMember> MakeSpinning(int size) {
  return MakeShm(size, SmallParts(std::chrono::microseconds(100)));
}
std::vector<CollectiveMember> MakeUsual(int size) {
  return MakeShm(size, ShmCollectiveOptions());
}

INSTANTIATE_TEST_SUITE_P(
    Shm, CollectiveConformance,
    testing::Combine(
        testing::Values(CollectiveFactory{"sleeping", MakeSleeping},
                        CollectiveFactory{"spinning", MakeSpinning},
                        CollectiveFactory{"usual", MakeUsual}),
        testing::ValuesIn(kConformanceSizes)),
    CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
