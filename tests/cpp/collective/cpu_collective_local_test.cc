// CpuCollective over LocalTransport, in the suite of all collectives.
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/local_transport.h"

namespace keras_ring {
namespace {

std::vector<CollectiveMember> MakeLocal(int size) {
  CpuCollectiveOptions options;
  options.fusion_buffer_bytes = kTestBufferBytes;
  options.direct_bytes = kTestDirectBytes;
  options.max_segment_bytes = kTestSegmentBytes;
  std::vector<CollectiveMember> members;
  for (auto& transport : CreateLocalTransports(size)) {
    auto collective = std::make_unique<CpuCollective>(*transport, options);
    members.push_back({std::shared_ptr<Transport>(std::move(transport)),
                       std::move(collective)});
  }
  return members;
}

INSTANTIATE_TEST_SUITE_P(Local, CollectiveConformance,
                         testing::Combine(testing::Values(CollectiveFactory{
                                              "local", MakeLocal}),
                                          testing::ValuesIn(kConformanceSizes)),
                         CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
