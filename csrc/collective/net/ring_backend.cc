#include "csrc/collective/net/ring_backend.h"

#include <utility>

#include "csrc/collective/net/cpu_collective.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/transport/tcp_transport.h"

namespace keras_ring {
namespace {

Status Available(const BackendDeps&) { return OkStatus(); }

Result<std::unique_ptr<Collective>> Make(const BackendDeps& deps, Mesh& mesh,
                                         Deadline deadline) {
  const int rank = deps.options.rank;
  const int size = deps.options.size;
  const CpuCollectiveOptions options;
  KR_ASSIGN_OR_RETURN(
      auto links,
      mesh.Connect(LinkKind::kData, CpuCollectivePeers(rank, size, options),
                   deadline));
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<Transport> transport,
      TcpTransport::Create(rank, size, std::move(links), deps.idle_limit,
                           Seconds(deps.options.heartbeat_timeout),
                           deps.counters, deps.ranks, deps.trace, deps.spin));
  return std::unique_ptr<Collective>(std::make_unique<CpuCollective>(
      std::move(transport), options, Meter(deps.counters, deps.trace)));
}

}  // namespace

const CollectiveBackend kRingBackend = {"ring", DeviceKind::kHost,
                                        /*reads_arenas=*/false, Available,
                                        Make};

}  // namespace keras_ring
