// CpuCollective over LocalTransport, in the suite of all collectives.
#include <string>
#include <vector>

#include "csrc/collective/net/cpu_collective.h"
#include "csrc/collective/net/ring.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/local_transport.h"
#include "csrc/testing/test_links.h"

namespace keras_ring {
namespace {

std::vector<CollectiveMember> MakeLocal(int size,
                                        CpuCollectiveOptions options) {
  options.fusion_buffer_bytes = kTestBufferBytes;
  options.direct_bytes = kTestDirectBytes;
  options.max_segment_bytes = kTestSegmentBytes;
  options.algorithms.links = TestLinks();
  std::vector<CollectiveMember> members;
  for (auto& transport : CreateLocalTransports(size)) {
    auto collective = std::make_unique<CpuCollective>(*transport, options);
    members.push_back({std::shared_ptr<Transport>(std::move(transport)),
                       std::move(collective)});
  }
  return members;
}

CollectiveFactory Local(const std::string& name,
                        const CpuCollectiveOptions& options) {
  return {name, [options](int size) { return MakeLocal(size, options); }};
}

CollectiveFactory Ring() {
  CpuCollectiveOptions options;
  options.max_exchange_ranks = 1;
  return Local("ring", options);
}

// As where ranks are dealt out to two hosts in turn.
CollectiveFactory RingByHost() {
  const auto options_of = [](int size) {
    std::vector<std::string> host_ids;
    for (int rank = 0; rank < size; ++rank) {
      host_ids.push_back(rank % 2 == 0 ? "a" : "b");
    }
    CpuCollectiveOptions options;
    options.max_exchange_ranks = 1;
    options.ring_order = RingOrder(host_ids);
    return options;
  };
  const auto make = [options_of](int size) {
    return MakeLocal(size, options_of(size));
  };
  const auto neighbours = [options_of](int size) {
    return CpuCollectivePeers(size - 1, size, options_of(size));
  };
  return {"ring_by_host", make, nullptr, neighbours};
}

CollectiveFactory OneShot(size_t staged_bytes) {
  CpuCollectiveOptions options;
  options.algorithms.allreduce = Preference::kFewHops;
  options.staged_bytes = staged_bytes;
  return Local(staged_bytes == 0 ? "one_shot" : "one_shot_staged", options);
}

CollectiveFactory TwoShots(size_t staged_bytes) {
  CpuCollectiveOptions options;
  options.algorithms.allreduce = Preference::kFewBytes;
  options.staged_bytes = staged_bytes;
  return Local(staged_bytes == 0 ? "two_shots" : "two_shots_staged", options);
}

constexpr size_t kAlways = 1 << 20;

INSTANTIATE_TEST_SUITE_P(Local, CollectiveConformance,
                         testing::Combine(testing::Values(Ring(), TwoShots(0)),
                                          testing::ValuesIn(kConformanceSizes)),
                         CollectiveConformance::Name);

INSTANTIATE_TEST_SUITE_P(
    LocalVariants, CollectiveConformance,
    testing::Combine(testing::Values(OneShot(0), OneShot(kAlways),
                                     TwoShots(kAlways), RingByHost()),
                     testing::Values(2, 3, 5)),
    CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
