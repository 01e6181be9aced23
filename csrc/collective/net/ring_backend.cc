#include "csrc/collective/net/ring_backend.h"

#include <utility>
#include <vector>

#include "csrc/collective/net/algorithms.h"
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/collective/net/measure_links.h"
#include "csrc/collective/net/ring.h"

namespace keras_ring {
namespace {

Status Available(const BackendDeps&) { return OkStatus(); }

Result<std::unique_ptr<Collective>> Make(const BackendDeps& deps, Mesh& mesh,
                                         Deadline deadline) {
  return MakeFlat(deps, mesh, ConnectTransport, deadline);
}

}  // namespace

Result<std::unique_ptr<Collective>> MakeFlat(const BackendDeps& deps,
                                             Mesh& mesh, TransportMaker connect,
                                             Deadline deadline) {
  CpuCollectiveOptions options;
  options.algorithms = AlgorithmsOf(deps.options);
  options.ring_order = RingOrder(deps.host_ids);
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<Transport> transport,
      connect(deps, mesh,
              CpuCollectivePeers(deps.options.rank, deps.options.size, options),
              deadline));
  KR_ASSIGN_OR_RETURN(
      options.algorithms.links,
      MeasureAndAgree(*transport, options.ring_order, mesh, deadline));
  return std::unique_ptr<Collective>(std::make_unique<CpuCollective>(
      std::move(transport), options, Meter(deps.counters, deps.trace)));
}

const CollectiveBackend kRingBackend = {"ring", DeviceKind::kHost,
                                        /*reads_arenas=*/false, Available,
                                        Make};

}  // namespace keras_ring
