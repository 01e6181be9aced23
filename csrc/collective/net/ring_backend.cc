#include "csrc/collective/net/ring_backend.h"

#include <utility>

#include "csrc/collective/net/connect_transport.h"
#include "csrc/collective/net/cpu_collective.h"

namespace keras_ring {
namespace {

Status Available(const BackendDeps&) { return OkStatus(); }

Result<std::unique_ptr<Collective>> Make(const BackendDeps& deps, Mesh& mesh,
                                         Deadline deadline) {
  const CpuCollectiveOptions options;
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<Transport> transport,
      ConnectTransport(
          deps, mesh,
          CpuCollectivePeers(deps.options.rank, deps.options.size, options),
          deadline));
  return std::unique_ptr<Collective>(std::make_unique<CpuCollective>(
      std::move(transport), options, Meter(deps.counters, deps.trace)));
}

}  // namespace

const CollectiveBackend kRingBackend = {"ring", DeviceKind::kHost,
                                        /*reads_arenas=*/false, Available,
                                        Make};

}  // namespace keras_ring
