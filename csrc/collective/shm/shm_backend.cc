#include "csrc/collective/shm/shm_backend.h"

#include "csrc/collective/shm/shm_collective.h"
#include "csrc/comm/host/host_group.h"

namespace keras_ring {
namespace {

Status Available(const BackendDeps& deps) {
  if (deps.host != nullptr && deps.host->size() == deps.options.size) {
    return OkStatus();
  }
  return FailedPreconditionError("the ranks are on several hosts");
}

Result<std::unique_ptr<Collective>> Make(const BackendDeps& deps, Mesh&,
                                         Deadline) {
  ShmCollectiveOptions options;
  options.barrier = BarrierOptionsOf(deps);
  if (deps.options.deterministic) options.adasum_round = 0;
  return std::unique_ptr<Collective>(std::make_unique<ShmCollective>(
      *deps.host, options, Meter(deps.counters, deps.trace)));
}

}  // namespace

ChunkBarrierOptions BarrierOptionsOf(const BackendDeps& deps) {
  ChunkBarrierOptions options;
  options.limit = deps.idle_limit;
  options.report_time = Seconds(deps.options.heartbeat_timeout);
  options.spin = deps.spin;
  options.clock = &deps.clock;
  return options;
}

const CollectiveBackend kShmBackend = {"shm", DeviceKind::kHost,
                                       /*reads_arenas=*/true, Available, Make};

}  // namespace keras_ring
