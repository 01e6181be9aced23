#include "csrc/collective/hierarchy/hierarchical_collective.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "csrc/collective/arguments.h"
#include "csrc/collective/net/levels_run.h"

namespace keras_ring {
namespace {

ChunkBarrierOptions WithBells(ChunkBarrierOptions options,
                              const HostGroup& group) {
  for (int i = 0; i < group.size(); ++i) {
    options.bells.push_back(&group.data_bell(i));
  }
  return options;
}

std::vector<Group> LevelsOf(const Placement& placement, int rank,
                            const HierarchicalOptions& options) {
  if (placement.local_rank(rank) >= placement.num_lanes()) return {};
  return PlanLevels(placement.host(rank), placement.num_hosts(),
                    GroupSide(placement.num_hosts(), options));
}

std::vector<int> GroupsOf(const Placement& placement,
                          const HierarchicalOptions& options) {
  return LargestGroups(placement.num_hosts(),
                       GroupSide(placement.num_hosts(), options));
}

std::vector<int> MostSums(const Placement& placement,
                          const HierarchicalOptions& options) {
  std::vector<int> most = GroupsOf(placement, options);
  most.pop_back();
  most.insert(most.begin(), placement.max_ranks());
  return most;
}

}  // namespace

int GroupSide(int num_hosts, const HierarchicalOptions& options) {
  if (options.flat.algorithms.in_pairs) return 2;
  if (num_hosts <= options.most_hosts) return std::max(2, num_hosts);
  if (options.group_side > 0) return options.group_side;
  return static_cast<int>(std::lround(std::ceil(std::sqrt(num_hosts))));
}

std::vector<int> HierarchicalPeers(const Placement& placement, int rank,
                                   const HierarchicalOptions& options) {
  const std::vector<int> flat =
      CpuCollectivePeers(rank, placement.num_ranks(), options.flat);
  std::set<int> peers(flat.begin(), flat.end());
  for (const Group& group : LevelsOf(placement, rank, options)) {
    for (int host : group.ranks) {
      peers.insert(placement.ranks(host)[placement.local_rank(rank)]);
    }
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

HierarchicalCollective::HierarchicalCollective(
    std::shared_ptr<const HostGroup> group, Placement placement,
    std::unique_ptr<Transport> transport, const HierarchicalOptions& options,
    const Meter& meter)
    : group_(std::move(group)),
      placement_(std::move(placement)),
      transport_(std::move(transport)),
      options_(options),
      meter_(meter),
      slots_(*group_, options.stage),
      barrier_(HostSlots::Pages(*group_), group_->global_ranks(),
               group_->local_rank(), WithBells(options.barrier, *group_),
               meter),
      flat_(*transport_, options.flat, meter),
      levels_(LevelsOf(placement_, transport_->rank(), options)),
      groups_(GroupsOf(placement_, options)),
      most_(MostSums(placement_, options)),
      scratch_(levels_.size()) {}

HierarchicalCollective::~HierarchicalCollective() { barrier_.Leave(); }

template <typename Function>
Status HierarchicalCollective::Guard(uint64_t tag, Function collective) {
  barrier_.SetTag(tag);
  Status status = broken_.Run(collective);
  // The others of the host need not wait for what will not come.
  if (!status.ok()) barrier_.Leave();
  return status;
}

Status HierarchicalCollective::Allreduce(const AllreduceArgs& args) {
  return Guard(args.tag, [&] {
    if (args.op == ReduceOp::kAdasum ||
        options_.flat.algorithms.ring_allreduce) {
      return flat_.Allreduce(args);
    }
    return Reduce(args).WithContext("allreduce");
  });
}

Status HierarchicalCollective::Allgather(const AllgatherArgs& args) {
  return Guard(args.tag, [&] { return flat_.Allgather(args); });
}

Status HierarchicalCollective::Broadcast(const BroadcastArgs& args) {
  return Guard(args.tag, [&] { return flat_.Broadcast(args); });
}

Status HierarchicalCollective::Reducescatter(const ReducescatterArgs& args) {
  return Guard(args.tag, [&] { return flat_.Reducescatter(args); });
}

Status HierarchicalCollective::Alltoall(const AlltoallArgs& args) {
  return Guard(args.tag, [&] { return flat_.Alltoall(args); });
}

std::string HierarchicalCollective::Explain() const {
  if (options_.flat.algorithms.ring_allreduce) return flat_.Explain();
  std::string text = std::to_string(placement_.num_ranks()) + " ranks on " +
                     std::to_string(placement_.num_hosts()) + " hosts, in " +
                     std::to_string(placement_.num_lanes()) +
                     (placement_.num_lanes() == 1 ? " lane\n" : " lanes\n");
  for (size_t level = 0; groups_.size() > 1 && level < groups_.size();
       ++level) {
    text += level == 0 ? "groups of up to " : ", and of these of up to ";
    text += std::to_string(groups_[level]);
    if (level + 1 == groups_.size()) text += "\n";
  }
  return text + ExplainAllreduce(options_.flat.algorithms.links,
                                 options_.flat.algorithms.allreduce, groups_,
                                 "a lane's part");
}

void HierarchicalCollective::PeerGone(int rank) {
  const int local_rank = group_->LocalRankOf(rank);
  if (local_rank >= 0) barrier_.SetGone(local_rank);
}

void HierarchicalCollective::Abort(const Status& cause) {
  if (!broken_.Set(cause)) return;
  barrier_.Abort(cause);
  flat_.Abort(cause);
}

Status HierarchicalCollective::Reduce(const AllreduceArgs& args) {
  KR_RETURN_IF_ERROR(CheckReduction(args));
  HostSums sums(args, most_);
  row_.Assign(args.tensors, sums.method().element_size,
              sums.method().wire_size);
  if (row_.count() == 0) return OkStatus();
  const size_t bytes = row_.count() * sums.size();
  const int lanes =
      bytes <= options_.one_lane_bytes ? 1 : placement_.num_lanes();
  HostStage stage(*group_, slots_, barrier_, row_, sums, lanes, next_chunk_,
                  meter_);
  next_chunk_ += stage.num_chunks();
  const int lane = group_->local_rank();
  return lane < lanes ? RunLane(stage, sums, lane) : RunStage(stage);
}

Status HierarchicalCollective::RunStage(HostStage& stage) {
  SendReceivePlan plan;
  plan.tag = barrier_.tag();
  plan.events = &stage;
  plan.advance = [&stage](SendReceivePlan& p) {
    stage.Look();
    stage.Advance();
    p.busy = !stage.finished();
  };
  return transport_->Run(plan);
}

Status HierarchicalCollective::RunLane(HostStage& stage, HostSums& sums,
                                       int lane) {
  const std::vector<Range> parts = stage.PartsOf(lane);
  // Chunks follow each other: what counts is how much they are together.
  int64_t count = 0;
  for (const Range& part : parts) count += part.count();
  LevelsShape shape;
  shape.lag = options_.stage.lag();
  const Algorithms& algorithms = options_.flat.algorithms;
  shape.is_small = AllreduceTakesFewHops(algorithms.links, algorithms.allreduce,
                                         groups_, count * sums.size());
  LevelsRun run(levels_, placement_.Lane(lane), parts, shape, stage,
                sums.method(), row_, scratch_, meter_);
  SendReceivePlan plan;
  plan.tag = barrier_.tag();
  KR_RETURN_IF_ERROR(run.AddTo(plan));
  plan.events = &stage;
  plan.advance = [&](SendReceivePlan& p) {
    do {
      stage.Look();
      run.Advance(p);
    } while (stage.Advance());
    p.busy = !stage.finished() || run.num_done() < stage.num_chunks();
  };
  return transport_->Run(plan);
}

}  // namespace keras_ring
