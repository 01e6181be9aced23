// CpuCollective over TcpTransport on loopback, in the suite of all collectives.
#include <poll.h>

#include <chrono>
#include <map>

#include "csrc/base/counters.h"
#include "csrc/collective/cpu_collective.h"
#include "csrc/comm/socket.h"
#include "csrc/comm/tcp_transport.h"
#include "csrc/testing/collective_conformance.h"

namespace keras_ring {
namespace {

constexpr std::chrono::seconds kLimit{30};

// The ends of one new connection.
std::pair<Socket, Socket> ConnectedSockets() {
  const Deadline deadline = Deadline::After(kLimit);
  Result<Socket> listener = Listen("127.0.0.1", 0);
  KR_CHECK(listener.ok());
  Result<uint16_t> port = LocalPort(*listener);
  KR_CHECK(port.ok());
  Result<Socket> dialled = Connect("127.0.0.1", *port, deadline);
  KR_CHECK(dialled.ok());
  KR_CHECK(WaitFor(*listener, POLLIN, deadline).ok());
  Result<Socket> accepted = Accept(*listener);
  KR_CHECK(accepted.ok() && accepted->valid());
  return {std::move(*dialled), std::move(*accepted)};
}

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
  // A ring talks to neighbours only; the ring of two has one link.
  std::vector<std::map<int, Socket>> links(size);
  for (int rank = 0; rank < (size == 2 ? 1 : size) && size > 1; ++rank) {
    const int next = (rank + 1) % size;
    std::tie(links[rank][next], links[next][rank]) = ConnectedSockets();
  }
  std::vector<CollectiveMember> members;
  for (int rank = 0; rank < size; ++rank) {
    auto foundation = std::make_shared<TcpFoundation>();
    auto transport = TcpTransport::Create(rank, size, std::move(links[rank]),
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
