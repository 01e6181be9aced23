#include "csrc/runtime/runtime_parts.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/collective/ring/cpu_collective.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/transport/local_link.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/comm/transport/tcp_transport.h"
#include "csrc/control/control_tree.h"

namespace keras_ring {
namespace {

// Must hold the description of a large model's gradients in one message.
constexpr size_t kMaxControlFrame = 64 << 20;

// The longest that a thread looks for what it waits for before it sleeps: about
// the time between two steps of a small model.
constexpr Duration kSpin = std::chrono::microseconds(200);

// The neighbours in the ring, which is all that its collectives speak to.
std::vector<int> RingPeers(int rank, int size) {
  std::set<int> peers = {(rank + 1) % size, (rank + size - 1) % size};
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

// The ranks of the own host, ascending.
std::vector<int> RanksOfHost(const std::vector<std::string>& host_ids,
                             int rank) {
  std::vector<int> ranks;
  for (int r = 0; r < static_cast<int>(host_ids.size()); ++r) {
    if (host_ids[r] == host_ids[rank]) ranks.push_back(r);
  }
  return ranks;
}

size_t RoundUpToLine(size_t bytes) { return (bytes + 63) / 64 * 64; }

// Ranks that share a core take turns: whoever spins holds the others up.
Duration SpinOf(const HostGroup& host) {
  return host.NumUsableCores() >= host.size() ? kSpin : Duration::zero();
}

Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(seconds));
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
  // The job has tried, and said why it could not.
  if (!set.is_job() && job_host == nullptr) return std::unique_ptr<HostGroup>();
  const int size = static_cast<int>(ranks.size());
  std::vector<int> peers = {ranks.front()};
  if (options.rank == ranks.front()) {
    peers.assign(ranks.begin() + 1, ranks.end());
  }
  KR_ASSIGN_OR_RETURN(auto links,
                      mesh.Connect(LinkKind::kHost, peers, deadline));
  HostGroupLayout layout;
  layout.control_bytes = RoundUpToLine(ControlPage::BytesFor(size));
  layout.data_bytes = ShmCollective::DataBytes(size, ShmCollectiveOptions());
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

// Whether the tensors go through shared memory.
Result<bool> UsesSharedMemory(const Options& options, const HostGroup* host) {
  const bool possible = host != nullptr && host->size() == options.size;
  if (options.collective != "shm" || possible || options.size == 1) {
    return possible && options.collective != "ring";
  }
  return FailedPreconditionError(
      "KERAS_RING_COLLECTIVE is 'shm', but the ranks are on several hosts; "
      "use 'auto'");
}

Status MakeRing(const Options& options, Mesh& mesh, Deadline deadline,
                RuntimeDeps& deps) {
  KR_ASSIGN_OR_RETURN(
      auto data, mesh.Connect(LinkKind::kData,
                              RingPeers(options.rank, options.size), deadline));
  KR_ASSIGN_OR_RETURN(
      deps.transport,
      TcpTransport::Create(options.rank, options.size, std::move(data),
                           deps.idle_limit, Seconds(options.heartbeat_timeout),
                           *deps.counters, deps.ranks));
  deps.collective =
      std::make_unique<CpuCollective>(*deps.transport, CpuCollectiveOptions());
  return OkStatus();
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
  const ControlTree tree = BuildControlTree(deps.host_ids, options.rank);
  KR_ASSIGN_OR_RETURN(auto control,
                      mesh.Connect(LinkKind::kControl, tree.Peers(), deadline));
  KR_ASSIGN_OR_RETURN(
      deps.channel, MessageChannel::Create(std::move(control), kMaxControlFrame,
                                           *deps.counters, deps.host.get(),
                                           spin, deps.ranks, *deps.clock));
  KR_ASSIGN_OR_RETURN(const bool shared,
                      UsesSharedMemory(options, deps.host.get()));
  if (shared) {
    ShmCollectiveOptions collective;
    collective.barrier.limit = deps.idle_limit;
    collective.barrier.report_time = Seconds(options.heartbeat_timeout);
    collective.barrier.spin = spin;
    collective.barrier.clock = deps.clock.get();
    deps.collective =
        std::make_unique<ShmCollective>(*deps.host, collective, *deps.counters);
  } else {
    KR_RETURN_IF_ERROR(MakeRing(options, mesh, deadline, deps));
  }
  return OkStatus();
}

}  // namespace keras_ring
