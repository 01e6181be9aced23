#include "csrc/runtime/runtime_parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/base/round.h"
#include "csrc/collective/cuda/cuda_backends.h"
#include "csrc/collective/hierarchy/hierarchy_backend.h"
#include "csrc/collective/hierarchy/host_stage.h"
#include "csrc/collective/hierarchy/placement.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/transport/local_link.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/message_length.h"
#include "csrc/runtime/backends.h"

namespace keras_ring {
namespace {

// The longest time that a thread spins before it sleeps: about the time between
// two steps of a small model.
constexpr Duration kSpin = std::chrono::microseconds(200);

// The ranks of the own host, ascending.
std::vector<int> RanksOfHost(const std::vector<std::string>& host_ids,
                             int rank) {
  std::vector<int> ranks;
  for (int r = 0; r < static_cast<int>(host_ids.size()); ++r) {
    if (host_ids[r] == host_ids[rank]) ranks.push_back(r);
  }
  return ranks;
}

constexpr size_t kCacheLine = 64;

// Ranks that share a core take turns: a spinning rank delays the others.
Duration SpinOf(const HostGroup& host) {
  return host.NumUsableCores() >= host.size() ? kSpin : Duration::zero();
}

// Null where the ranks of this host cannot share memory; then none of them
// does, and each says why.
Result<std::unique_ptr<HostGroup>> FormHostGroup(
    const RuntimeDeps& deps, const std::shared_ptr<Arena>& arena,
    const HostGroup* job_host, Mesh& mesh, Deadline deadline) {
  const Options& options = deps.options;
  const RankSet& set = deps.ranks;
  const std::vector<int> ranks = RanksOfHost(deps.host_ids, options.rank);
  if (ranks.size() == 1) return std::unique_ptr<HostGroup>();
  // The job has tried this, and logged why it could not.
  if (!set.is_job() && job_host == nullptr) return std::unique_ptr<HostGroup>();
  const int size = static_cast<int>(ranks.size());
  std::vector<int> peers = {ranks.front()};
  if (options.rank == ranks.front()) {
    peers.assign(ranks.begin() + 1, ranks.end());
  }
  KR_ASSIGN_OR_RETURN(auto links,
                      mesh.Connect(LinkKind::kHost, peers, deadline));
  const Placement placement(deps.host_ids);
  HostGroupLayout layout;
  layout.control_bytes = RoundUp(ControlPage::BytesFor(size), kCacheLine);
  layout.data_bytes = RoundUp(
      std::max(
          ShmCollective::DataBytes(size, ShmCollectiveOptions()),
          HostSlots::DataBytes(size, StageOptionsFor(placement.num_hosts(),
                                                     placement.max_ranks()))),
      kCacheLine);
  layout.data_bytes += CudaIpcDataBytes(size);
  std::shared_ptr<const SharedMemory> tensors;
  if (arena != nullptr && arena->shared()) tensors = {arena, &arena->memory()};
  Result<std::unique_ptr<HostGroup>> group =
      set.is_job() ? HostGroup::Form(ranks, options.rank, layout, tensors,
                                     links, deadline)
                   : HostGroup::FormWithin(*job_host, set, ranks, options.rank,
                                           layout, links, deadline);
  if (group.ok()) return group;
  if (options.collective == "shm") return group.status();
  KR_LOG(kWarning) << group.status().message()
                   << "; its ranks use TCP instead, which is slower";
  return std::unique_ptr<HostGroup>();
}

// Returns whether the ranks of each host share memory; each host knows this
// only of itself.
Result<bool> HostsShareMemory(const RuntimeDeps& deps, Mesh& mesh,
                              Deadline deadline) {
  const Placement placement(deps.host_ids);
  if (placement.num_hosts() == 1) return deps.host != nullptr;
  if (placement.max_ranks() == 1) return true;
  const bool alone = RanksOfHost(deps.host_ids, deps.options.rank).size() == 1;
  const bool shares = alone || deps.host != nullptr;
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                      mesh.Exchange(shares ? "y" : "n", deadline));
  return std::count(all.begin(), all.end(), "n") == 0;
}

}  // namespace

Status ConnectParts(Mesh& mesh, const std::shared_ptr<Arena>& arena,
                    const HostGroup* job_host, Deadline deadline,
                    RuntimeDeps& deps) {
  const Options& options = deps.options;
  deps.idle_limit = std::make_shared<IdleLimit>(
      options.stall_shutdown_time > 0 ? Seconds(options.stall_shutdown_time)
                                      : IdleLimit::kNever);
  KR_ASSIGN_OR_RETURN(deps.host,
                      FormHostGroup(deps, arena, job_host, mesh, deadline));
  const Duration spin = deps.host ? SpinOf(*deps.host) : kSpin;
  const ControlTree tree =
      TreeOfRuntime(deps.host_ids, deps.ranks, options.rank);
  KR_ASSIGN_OR_RETURN(auto control,
                      mesh.Connect(LinkKind::kControl, tree.Peers(), deadline));
  KR_ASSIGN_OR_RETURN(
      deps.channel, MessageChannel::Create(std::move(control), kMaxMessageBytes,
                                           *deps.counters, deps.host.get(),
                                           spin, deps.ranks, *deps.clock));
  KR_ASSIGN_OR_RETURN(const bool share, HostsShareMemory(deps, mesh, deadline));
  BackendDeps of_backend{options,
                         deps.ranks,
                         deps.host.get(),
                         deps.host_ids,
                         share,
                         deps.idle_limit,
                         spin,
                         *deps.clock,
                         *deps.counters,
                         deps.trace.get(),
                         deps.gpus.get()};
  KR_ASSIGN_OR_RETURN(const CollectiveBackend* const backend,
                      ChooseBackend(of_backend));
  KR_ASSIGN_OR_RETURN(deps.collective,
                      backend->make(of_backend, mesh, deadline));
  if (deps.gpus == nullptr) return OkStatus();
  of_backend.host_collective = deps.collective.get();
  KR_ASSIGN_OR_RETURN(const CollectiveBackend* const of_gpus,
                      ChooseBackend(of_backend, DeviceKind::kCuda));
  KR_ASSIGN_OR_RETURN(deps.gpu_collective,
                      of_gpus->make(of_backend, mesh, deadline));
  return OkStatus();
}

}  // namespace keras_ring
