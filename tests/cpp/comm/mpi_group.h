// A job's MpiTransports in one process.
#ifndef KERAS_RING_TESTS_COMM_MPI_GROUP_H_
#define KERAS_RING_TESTS_COMM_MPI_GROUP_H_

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/comm/transport/mpi_port.h"
#include "csrc/comm/transport/mpi_transport.h"

namespace keras_ring {

// By rank. `counters` must outlive the transports.
inline std::vector<std::unique_ptr<Transport>> NewMpiGroup(
    std::vector<std::unique_ptr<MpiPort>> ports, Duration idle_limit,
    Counters& counters, Duration spin = Duration::zero(),
    Duration report_time = std::chrono::seconds(30)) {
  const int size = static_cast<int>(ports.size());
  std::vector<std::unique_ptr<Transport>> group;
  for (int rank = 0; rank < size; ++rank) {
    auto transport = MpiTransport::Create(
        {rank, size, std::make_shared<IdleLimit>(idle_limit), report_time,
         counters, RankSet(), /*trace=*/nullptr, spin},
        std::move(ports[rank]));
    KR_CHECK(transport.ok());
    group.push_back(std::move(transport).value());
  }
  return group;
}

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_COMM_MPI_GROUP_H_
