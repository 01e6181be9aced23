// CpuCollective over MpiTransport, in the suite of all collectives: on a fake,
// and on the MPI that the environment names.
#include <chrono>

#include "csrc/base/counters.h"
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/fake_mpi.h"
#include "csrc/testing/test_links.h"
#include "tests/cpp/comm/mpi_group.h"
#include "tests/cpp/comm/process_mpi.h"

namespace keras_ring {
namespace {

std::vector<CollectiveMember> MakeMpi(int size) {
  CpuCollectiveOptions options;
  options.algorithms.links = TestLinks();
  options.fusion_buffer_bytes = kTestBufferBytes;
  options.direct_bytes = kTestDirectBytes;
  options.max_segment_bytes = kTestSegmentBytes;
  auto ports = ProcessMpi::Path() != nullptr ? ProcessMpi::Get().NewPorts(size)
                                             : CreateFakeMpiPorts(size);
  auto counters = std::make_shared<Counters>();
  auto transports =
      NewMpiGroup(std::move(ports), std::chrono::seconds(30), *counters);
  std::vector<CollectiveMember> members;
  for (auto& transport : transports) {
    members.push_back({counters, std::make_unique<CpuCollective>(
                                     std::move(transport), options)});
  }
  return members;
}

CollectiveFactory Mpi() {
  CollectiveFactory factory{"mpi", MakeMpi};
  // MPI says nothing of lost ranks.
  factory.neighbours = [](int) { return std::vector<int>(); };
  return factory;
}

// Few ranks: it is run on three MPIs, and what more of them do is the same over
// every transport.
INSTANTIATE_TEST_SUITE_P(Mpi, CollectiveConformance,
                         testing::Combine(testing::Values(Mpi()),
                                          testing::Values(1, 2, 3)),
                         CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
