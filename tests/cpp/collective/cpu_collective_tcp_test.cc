// CpuCollective over TcpTransport on loopback, in the suite of all collectives.
#include <chrono>

#include "csrc/base/counters.h"
#include "csrc/collective/ring/cpu_collective.h"
#include "csrc/comm/transport/tcp_transport.h"
#include "csrc/testing/collective_conformance.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

constexpr std::chrono::seconds kLimit{30};

// What a rank's collective stands on, in order of construction.
struct TcpFoundation {
  Counters counters;
  std::unique_ptr<Transport> transport;
};

std::vector<CollectiveMember> MakeTcp(int size) {
  CpuCollectiveOptions options;
  options.fusion_buffer_bytes = kTestBufferBytes;
  options.direct_bytes = kTestDirectBytes;
  options.max_segment_bytes = kTestSegmentBytes;
  auto sockets = ConnectedMesh(size);
  std::vector<CollectiveMember> members;
  for (int rank = 0; rank < size; ++rank) {
    auto foundation = std::make_shared<TcpFoundation>();
    auto transport = TcpTransport::Create(rank, size, std::move(sockets[rank]),
                                          std::make_shared<IdleLimit>(kLimit),
                                          kLimit, foundation->counters);
    KR_CHECK(transport.ok());
    foundation->transport = std::move(*transport);
    auto collective =
        std::make_unique<CpuCollective>(*foundation->transport, options);
    members.push_back({std::move(foundation), std::move(collective)});
  }
  return members;
}

INSTANTIATE_TEST_SUITE_P(Tcp, CollectiveConformance,
                         testing::Combine(testing::Values(CollectiveFactory{
                                              "tcp", MakeTcp}),
                                          testing::ValuesIn(kConformanceSizes)),
                         CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
