// A job's TcpTransports in one process.
#ifndef KERAS_RING_TESTS_COMM_TCP_GROUP_H_
#define KERAS_RING_TESTS_COMM_TCP_GROUP_H_

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/transport/tcp_transport.h"

namespace keras_ring {

// links[rank][peer], for every pair. `counters` must outlive the transports.
inline std::vector<std::unique_ptr<Transport>> NewTcpGroup(
    std::vector<Links> links, Duration idle_limit, Counters& counters,
    Duration link_limit = std::chrono::seconds(30),
    Duration spin = Duration::zero()) {
  const int size = static_cast<int>(links.size());
  std::vector<std::unique_ptr<Transport>> group;
  for (int rank = 0; rank < size; ++rank) {
    auto transport = TcpTransport::Create(
        {rank, size, std::make_shared<IdleLimit>(idle_limit), link_limit,
         counters, RankSet(), /*trace=*/nullptr, spin},
        std::move(links[rank]));
    KR_CHECK(transport.ok());
    group.push_back(std::move(transport).value());
  }
  return group;
}

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_COMM_TCP_GROUP_H_
