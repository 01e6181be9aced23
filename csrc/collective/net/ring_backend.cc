#include "csrc/collective/net/ring_backend.h"

#include <numeric>
#include <utility>
#include <vector>

#include "csrc/collective/net/algorithms.h"
#include "csrc/collective/net/connect_transport.h"
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/collective/net/measure_links.h"

namespace keras_ring {
namespace {

Status Available(const BackendDeps&) { return OkStatus(); }

Result<std::unique_ptr<Collective>> Make(const BackendDeps& deps, Mesh& mesh,
                                         Deadline deadline) {
  CpuCollectiveOptions options;
  options.algorithms = AlgorithmsOf(deps.options);
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<Transport> transport,
      ConnectTransport(
          deps, mesh,
          CpuCollectivePeers(deps.options.rank, deps.options.size, options),
          deadline));
  std::vector<int> line(deps.options.size);
  std::iota(line.begin(), line.end(), 0);
  KR_ASSIGN_OR_RETURN(options.algorithms.links,
                      MeasureAndAgree(*transport, line, mesh, deadline));
  return std::unique_ptr<Collective>(std::make_unique<CpuCollective>(
      std::move(transport), options, Meter(deps.counters, deps.trace)));
}

}  // namespace

const CollectiveBackend kRingBackend = {"ring", DeviceKind::kHost,
                                        /*reads_arenas=*/false, Available,
                                        Make};

}  // namespace keras_ring
