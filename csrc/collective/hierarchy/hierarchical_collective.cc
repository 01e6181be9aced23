#include "csrc/collective/hierarchy/hierarchical_collective.h"

#include <set>
#include <utility>

#include "csrc/collective/arguments.h"

namespace keras_ring {
namespace {

ChunkBarrierOptions WithBells(ChunkBarrierOptions options,
                              const HostGroup& group) {
  for (int i = 0; i < group.size(); ++i) {
    options.bells.push_back(&group.data_bell(i));
  }
  return options;
}

}  // namespace

std::vector<int> HierarchicalPeers(const Placement& placement, int rank,
                                   const HierarchicalOptions& options) {
  int size = 0;
  for (int host = 0; host < placement.num_hosts(); ++host) {
    size += static_cast<int>(placement.ranks(host).size());
  }
  const std::vector<int> flat = CpuCollectivePeers(rank, size, options.flat);
  const std::vector<int> lane = placement.LanePeers(rank);
  std::set<int> peers(flat.begin(), flat.end());
  peers.insert(lane.begin(), lane.end());
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
      flat_(*transport_, options.flat, meter) {}

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
    if (args.op == ReduceOp::kAdasum) return flat_.Allreduce(args);
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
  HostSums sums(args, placement_.max_ranks());
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
  const int hosts = placement_.num_hosts();
  const std::vector<Range> parts = stage.PartsOf(lane);
  const ExchangeShape shape{placement_.host(group_->rank(group_->local_rank())),
                            hosts,
                            /*max_step=*/0, options_.stage.depth};
  const size_t sent = parts.front().count() * sums.size() * (hosts - 1);
  const bool one_shot = hosts == 2 || sent <= options_.flat.one_shot_bytes;
  const ExchangeSchedule schedule = PlanChunks(shape, parts, one_shot);
  ExchangeBinding binding{sums.method(), row_};
  binding.ranks = placement_.Lane(lane);
  binding.host = &stage;
  ExchangeRun run(schedule, binding, scratch_, meter_);
  KR_ASSIGN_OR_RETURN(SendReceivePlan plan, run.Plan(barrier_.tag()));
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
