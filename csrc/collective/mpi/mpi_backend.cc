#include "csrc/collective/mpi/mpi_backend.h"

#include <utility>
#include <vector>

#include "csrc/collective/hierarchy/hierarchy_backend.h"
#include "csrc/collective/net/connect_transport.h"
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/collective/net/ring_backend.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/transport/mpi_library.h"
#include "csrc/comm/transport/mpi_transport.h"

namespace keras_ring {
namespace {

// A group of ranks sends and receives with the same tag.
std::vector<MpiPeer> PeersOf(const RankSet& ranks, int size) {
  std::vector<MpiPeer> peers;
  for (int rank = 0; rank < size; ++rank) {
    peers.push_back({ranks.Global(rank), ranks.tag(), ranks.tag()});
  }
  return peers;
}

// A TransportMaker. MPI connects ranks by itself, when they first send.
Result<std::unique_ptr<Transport>> ConnectMpi(const BackendDeps& deps, Mesh&,
                                              const std::vector<int>&,
                                              Deadline) {
  const Options& options = deps.options;
  KR_ASSIGN_OR_RETURN(const MpiSettings settings,
                      MpiSettings::Parse(options.mpi));
  KR_ASSIGN_OR_RETURN(std::unique_ptr<MpiPort> port,
                      NewMpiPort(settings, PeersOf(deps.ranks, options.size),
                                 /*owns_communicator=*/deps.ranks.is_job()));
  KR_ASSIGN_OR_RETURN(
      auto transport,
      MpiTransport::Create(TransportDepsOf(deps), std::move(port)));
  return std::unique_ptr<Transport>(std::move(transport));
}

Status Available(const BackendDeps& deps) {
  if (deps.options.mpi.empty()) {
    return FailedPreconditionError(
        "the ranks were not started by MPI: start them by `mpirun`, with "
        "mpi4py (`pip install mpi4py`), or give `init()` a communicator of it");
  }
  if (deps.options.tls) {
    return FailedPreconditionError(
        "KERAS_RING_TLS is 1, and MPI does not encrypt what it sends");
  }
  // A ring sums in an order that depends on where in a bucket an element lies.
  if (deps.options.deterministic && !HierarchyAvailable(deps).ok() &&
      deps.options.size > CpuCollectiveOptions().max_exchange_ranks) {
    return FailedPreconditionError(
        "KERAS_RING_DETERMINISTIC is 1, and so many ranks of one host send "
        "round a ring");
  }
  return OkStatus();
}

Result<std::unique_ptr<Collective>> Make(const BackendDeps& deps, Mesh& mesh,
                                         Deadline deadline) {
  if (HierarchyAvailable(deps).ok()) {
    return MakeHierarchy(deps, mesh, ConnectMpi, deadline);
  }
  return MakeFlat(deps, mesh, ConnectMpi, deadline);
}

}  // namespace

const CollectiveBackend kMpiBackend = {"mpi", DeviceKind::kHost,
                                       /*reads_arenas=*/true, Available, Make};

}  // namespace keras_ring
