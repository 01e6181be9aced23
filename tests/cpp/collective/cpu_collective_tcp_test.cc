// CpuCollective over TcpTransport on loopback, in the suite of all collectives.
#include <chrono>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/tcp_transport.h"
#include "csrc/testing/collective_conformance.h"
#include "csrc/testing/test_links.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

constexpr std::chrono::seconds kLimit{30};

// What a rank's collective stands on, in order of construction.
struct TcpFoundation {
  Counters counters;
  std::unique_ptr<Transport> transport;
};

std::vector<CollectiveMember> MakeTcp(int size,
                                      CpuCollectiveOptions options = {}) {
  options.algorithms.links = TestLinks();
  options.fusion_buffer_bytes = kTestBufferBytes;
  options.direct_bytes = kTestDirectBytes;
  options.max_segment_bytes = kTestSegmentBytes;
  auto sockets = ConnectedMesh(size);
  std::vector<CollectiveMember> members;
  for (int rank = 0; rank < size; ++rank) {
    auto foundation = std::make_shared<TcpFoundation>();
    auto transport =
        TcpTransport::Create({rank, size, std::make_shared<IdleLimit>(kLimit),
                              kLimit, foundation->counters},
                             std::move(sockets[rank]));
    KR_CHECK(transport.ok());
    foundation->transport = std::move(*transport);
    auto collective = std::make_unique<CpuCollective>(
        *foundation->transport, options, foundation->counters);
    members.push_back({std::move(foundation), std::move(collective)});
  }
  return members;
}

std::vector<CollectiveMember> MakeRing(int size) {
  CpuCollectiveOptions options;
  options.max_exchange_ranks = 1;
  return MakeTcp(size, options);
}

// Where the time went is told apart, so that kr.metrics() can.
TEST(CpuCollective, CountsWhereTheTimeGoes) {
  auto members = MakeTcp(3);
  RunRanks(3, [&](int rank) {
    if (rank == 1) {
      Pause(std::chrono::milliseconds(20), Deadline::AfterSeconds(1));
    }
    // Values that are compressed are packed and unpacked.
    std::vector<float> values(1000, 1.0f);
    AllreduceArgs args;
    args.compression = Compression::kFloat16;
    args.tensors = {{values.data(), values.data(), 1000}};
    ASSERT_TRUE(
        CollectiveCalls(*members[rank].collective).Allreduce(args).ok());
    EXPECT_EQ(values.back(), 3.0f);
  });
  const auto& counters =
      static_cast<TcpFoundation*>(members[0].foundation.get())->counters;
  EXPECT_GT(counters.wait_ns, 10'000'000u);
  EXPECT_GT(counters.pack_ns, 0u);
  EXPECT_GT(counters.reduce_ns, 0u);
  EXPECT_GT(counters.unpack_ns, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Tcp, CollectiveConformance,
    testing::Combine(testing::Values(CollectiveFactory{
                         "tcp", [](int size) { return MakeTcp(size); }}),
                     testing::ValuesIn(kConformanceSizes)),
    CollectiveConformance::Name);

INSTANTIATE_TEST_SUITE_P(TcpRing, CollectiveConformance,
                         testing::Combine(testing::Values(CollectiveFactory{
                                              "ring", MakeRing}),
                                          testing::Values(2, 3)),
                         CollectiveConformance::Name);

}  // namespace
}  // namespace keras_ring
