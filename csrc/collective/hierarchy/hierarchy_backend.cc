#include "csrc/collective/hierarchy/hierarchy_backend.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/round.h"
#include "csrc/base/task_thread.h"
#include "csrc/collective/hierarchy/hierarchical_collective.h"
#include "csrc/collective/hierarchy/placement.h"
#include "csrc/collective/net/algorithms.h"
#include "csrc/collective/net/levels.h"
#include "csrc/collective/net/measure_links.h"
#include "csrc/collective/net/ring.h"
#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/collective/shm/shm_backend.h"
#include "csrc/comm/host/host_group.h"

namespace keras_ring {
namespace {

// A part of a chunk is divided among the hosts of a group. Each host's share is
// one message that a single send can take (SendQuantum): the rest of a larger
// one would wait until messages to all other hosts have left. On the top level,
// a share must take longer to send than a message costs, so a part is several
// times as large where there are many hosts of few ranks; up to a limit, beyond
// which other parts would wait for it. All are multiples of 64.
constexpr size_t kMessageBytes = size_t{60} << 10;
// For all lanes of a host together, on the top level.
constexpr size_t kTopMessageBytes = kMessageBytes / 16;
constexpr size_t kMaxPartBytes = 24 * kMessageBytes;

// Ranks of hosts that do not share memory are hosts of their own.
Placement PlacementOf(const BackendDeps& deps) {
  if (deps.hosts_share_memory) return Placement(deps.host_ids);
  std::vector<std::string> ranks;
  for (int rank = 0; rank < deps.options.size; ++rank) {
    ranks.push_back(std::to_string(rank));
  }
  return Placement(ranks);
}

// The ranks of this host; a rank alone there has a group of its own.
Result<std::shared_ptr<const HostGroup>> GroupOf(
    const BackendDeps& deps, const HierarchicalOptions& options) {
  if (deps.host != nullptr && deps.hosts_share_memory) {
    return std::shared_ptr<const HostGroup>(std::shared_ptr<void>(), deps.host);
  }
  HostGroupLayout layout;
  layout.data_bytes = HostSlots::DataBytes(1, options.stage);
  KR_ASSIGN_OR_RETURN(HostGroup::Member own,
                      NewHostGroupMember(deps.options.rank, layout));
  std::vector<HostGroup::Member> members;
  members.push_back(std::move(own));
  return std::shared_ptr<const HostGroup>(std::make_shared<HostGroup>(
      std::move(members), /*local_rank=*/0, layout, deps.ranks));
}

// The ranks of the lane of a rank, if it is in one.
std::vector<int> LaneOf(const Placement& placement, int rank) {
  const int lane = placement.local_rank(rank);
  return lane < placement.num_lanes() ? placement.Lane(lane)
                                      : std::vector<int>();
}

// The helper takes a core from the program's own threads. A rank with fewer
// cores than this has none to spare.
constexpr int kCoresForHelper = 4;

// Returns null if the rank is to have no helper.
Result<std::unique_ptr<TaskThread>> MakeHelper(const BackendDeps& deps,
                                               const HostGroup& group) {
  const std::string& wanted = deps.options.helper_thread;
  const bool has_cores =
      group.NumUsableCores() >= kCoresForHelper * group.size();
  if (group.size() == 1 || wanted == "0" || (wanted == "auto" && !has_cores)) {
    return std::unique_ptr<TaskThread>();
  }
  return TaskThread::Start("kr-helper");
}

Result<std::unique_ptr<Collective>> Make(const BackendDeps& deps, Mesh& mesh,
                                         Deadline deadline) {
  return MakeHierarchy(deps, mesh, ConnectTransport, deadline);
}

}  // namespace

HostStageOptions StageOptionsFor(int num_hosts, int ranks_per_host) {
  const int side = GroupSide(num_hosts, HierarchicalOptions());
  const size_t least = std::min(side * kMessageBytes, kMaxPartBytes);
  const size_t wanted = num_hosts * kTopMessageBytes / ranks_per_host;
  HostStageOptions options;
  options.part_bytes = least * std::clamp(DivideUp(wanted, least), size_t{1},
                                          kMaxPartBytes / least);
  // Two chunks are in flight on the top, and on each level below almost twice
  // as many as above (LevelsShape).
  int64_t lag = 2;
  const size_t levels = LargestGroups(num_hosts, side).size();
  for (size_t level = 1; level < levels; ++level) lag = 2 * lag - 1;
  options.depth = std::clamp(lag + 1, options.depth, ProgressPage::kMaxDepth);
  return options;
}

Status HierarchyAvailable(const BackendDeps& deps) {
  const Placement placement = PlacementOf(deps);
  if (placement.num_hosts() == 1) {
    return FailedPreconditionError("the ranks are on one host");
  }
  // Up to this number of hosts, ranks exchange without the hierarchy.
  if (placement.is_hierarchical() ||
      placement.num_hosts() > CpuCollectiveOptions().max_exchange_ranks ||
      AlgorithmsOf(deps.options).in_pairs) {
    return OkStatus();
  }
  if (!deps.hosts_share_memory) {
    return FailedPreconditionError(
        "there is a host whose ranks cannot share memory");
  }
  return FailedPreconditionError("each host has one rank");
}

Result<std::unique_ptr<Collective>> MakeHierarchy(const BackendDeps& deps,
                                                  Mesh& mesh,
                                                  TransportMaker connect,
                                                  Deadline deadline) {
  const Placement placement = PlacementOf(deps);
  HierarchicalOptions options;
  options.barrier = BarrierOptionsOf(deps);
  options.stage = StageOptionsFor(placement.num_hosts(), placement.max_ranks());
  options.flat.algorithms = AlgorithmsOf(deps.options);
  options.flat.ring_order = RingOrder(deps.host_ids);
  KR_ASSIGN_OR_RETURN(std::shared_ptr<const HostGroup> group,
                      GroupOf(deps, options));
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<Transport> transport,
      connect(deps, mesh,
              HierarchicalPeers(placement, deps.options.rank, options),
              deadline));
  KR_ASSIGN_OR_RETURN(
      options.flat.algorithms.links,
      MeasureAndAgree(*transport, LaneOf(placement, deps.options.rank), mesh,
                      deadline));
  KR_ASSIGN_OR_RETURN(std::unique_ptr<TaskThread> helper,
                      MakeHelper(deps, *group));
  return std::unique_ptr<Collective>(std::make_unique<HierarchicalCollective>(
      std::move(group), placement, std::move(transport), options,
      Meter(deps.counters, deps.trace), std::move(helper)));
}

const CollectiveBackend kHierarchyBackend = {"hierarchy", DeviceKind::kHost,
                                             /*reads_arenas=*/true,
                                             HierarchyAvailable, Make};

}  // namespace keras_ring
