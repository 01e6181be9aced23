#include "csrc/collective/hierarchy/hierarchical_collective.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "csrc/base/round.h"
#include "csrc/collective/arguments.h"
#include "csrc/collective/hierarchy/host_alltoall.h"
#include "csrc/collective/hierarchy/host_moves.h"
#include "csrc/collective/hierarchy/host_sums.h"
#include "csrc/collective/reduction_kernels.h"
#include "csrc/collective/shm/host_page.h"

namespace keras_ring {
namespace {

// How much less, and how much more, than by default may be tuned.
constexpr int64_t kMaxTimes = 16;
constexpr int64_t kPartAlignment = 64;

// Into how many parts a lane is cut at least, if they are not small.
constexpr size_t kFewParts = 8;

// The least whole number that is, to the power of `degree`, no less. No
// floating point: all ranks must come to the same.
int RootAbove(int value, int degree) {
  for (int root = 1;; ++root) {
    int64_t power = 1;
    for (int i = 0; i < degree && power < value; ++i) power *= root;
    if (power >= value) return root;
  }
}

ChunkBarrierOptions WithDoorbells(ChunkBarrierOptions options,
                                  const HostGroup& group) {
  for (int i = 0; i < group.size(); ++i) {
    options.bells.push_back(&group.data_bell(i));
  }
  return options;
}

std::vector<Group> LevelsOf(const Placement& placement, int rank, int side) {
  if (placement.local_rank(rank) >= placement.num_lanes()) return {};
  return PlanLevels(placement.host(rank), placement.num_hosts(), side);
}

std::vector<int> GroupsOf(const Placement& placement,
                          const HierarchicalOptions& options) {
  return LargestGroups(placement.num_hosts(),
                       GroupSide(placement.num_hosts(), options));
}

std::vector<int> MaxSums(const Placement& placement,
                         const HierarchicalOptions& options) {
  std::vector<int> most = GroupsOf(placement, options);
  most.pop_back();
  most.insert(most.begin(), placement.max_ranks());
  return most;
}

int64_t Sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

}  // namespace

int GroupSide(int num_hosts, const HierarchicalOptions& options) {
  if (options.flat.algorithms.in_pairs) return 2;
  if (num_hosts <= options.max_hosts) return std::max(2, num_hosts);
  if (options.group_side > 0) return options.group_side;
  KR_CHECK(options.max_side >= 2);
  int side = RootAbove(num_hosts, 2);
  for (int levels = 3; side > options.max_side; ++levels) {
    side = RootAbove(num_hosts, levels);
  }
  return std::max(2, side);
}

int AlltoallSide(int num_hosts, const HierarchicalOptions& options) {
  const int side = GroupSide(num_hosts, options);
  return options.flat.algorithms.in_pairs || options.group_side > 0
             ? side
             : std::max(side, RootAbove(num_hosts, 2));
}

PartSizes PartSizesOf(size_t lane_bytes, size_t most, int ranks_per_host,
                      const std::vector<int>& groups,
                      const HierarchicalOptions& options) {
  const size_t hosts_met =
      std::accumulate(groups.begin(), groups.end(), size_t{0});
  const size_t ranks = ranks_per_host;
  const size_t ends = options.end_bytes * hosts_met / (ranks * ranks);
  PartSizes sizes;
  sizes.ends = std::min(
      RoundUp(std::max(ends, options.min_end_bytes), kPartAlignment), most);
  sizes.most = std::clamp(RoundUp(lane_bytes / kFewParts, kPartAlignment),
                          std::min(2 * sizes.ends, most), most);
  return sizes;
}

std::vector<int> HierarchicalPeers(const Placement& placement, int rank,
                                   const HierarchicalOptions& options) {
  const std::vector<int> flat =
      CpuCollectivePeers(rank, placement.num_ranks(), options.flat);
  std::set<int> peers(flat.begin(), flat.end());
  for (int side : {GroupSide(placement.num_hosts(), options),
                   AlltoallSide(placement.num_hosts(), options)}) {
    for (const Group& group : LevelsOf(placement, rank, side)) {
      for (int host : group.ranks) {
        peers.insert(placement.ranks(host)[placement.local_rank(rank)]);
      }
    }
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

HierarchicalCollective::HierarchicalCollective(
    std::shared_ptr<const HostGroup> group, Placement placement,
    std::unique_ptr<Transport> transport, const HierarchicalOptions& options,
    const Meter& meter, std::unique_ptr<TaskThread> helper)
    : group_(std::move(group)),
      placement_(std::move(placement)),
      transport_(std::move(transport)),
      options_(options),
      meter_(meter),
      slots_(*group_, options.stage),
      barrier_(HostPage::Progress(*group_), group_->global_ranks(),
               group_->local_rank(), WithDoorbells(options.barrier, *group_),
               meter),
      places_(*group_, HostPage::Tables(*group_)),
      streams_{barrier_,
               meter_,
               group_->size(),
               group_->local_rank(),
               static_cast<int64_t>(group_->size() * options_.stage.part_bytes),
               static_cast<uint64_t>(options_.stage.depth),
               [this](int local_rank, uint64_t chunk) {
                 return slots_.Values(local_rank, chunk, /*lane=*/0);
               }},
      flat_(*transport_, options.flat, meter),
      levels_(LevelsOf(placement_, transport_->rank(),
                       GroupSide(placement_.num_hosts(), options))),
      groups_(GroupsOf(placement_, options)),
      max_sums_(MaxSums(placement_, options)),
      scratch_(levels_.size()),
      helper_(std::move(helper)) {}

HierarchicalCollective::~HierarchicalCollective() { barrier_.Leave(); }

template <typename Function>
Status HierarchicalCollective::Guard(uint64_t tag, Function collective) {
  barrier_.SetTag(tag);
  Status status = broken_.Run(collective);
  // The other ranks of the host need not wait for steps that will not come.
  if (!status.ok()) barrier_.Leave();
  return status;
}

Status HierarchicalCollective::Allreduce(const AllreduceArgs& args) {
  return Guard(args.tag, [&] {
    if (args.op == ReduceOp::kAdasum ||
        options_.flat.algorithms.ring_allreduce) {
      return flat_.Allreduce(args);
    }
    return DoAllreduce(args).WithContext("allreduce");
  });
}

Status HierarchicalCollective::Allgather(const AllgatherArgs& args) {
  return Guard(args.tag, [&] {
    if (options_.flat.algorithms.ring_allgather || !HasRoomForBlocks(1)) {
      return flat_.Allgather(args);
    }
    return DoAllgather(args).WithContext("allgather");
  });
}

Status HierarchicalCollective::Broadcast(const BroadcastArgs& args) {
  return Guard(args.tag, [&] {
    if (options_.flat.algorithms.broadcast != Preference::kByModel) {
      return flat_.Broadcast(args);
    }
    return DoBroadcast(args).WithContext("broadcast");
  });
}

Status HierarchicalCollective::Reducescatter(const ReducescatterArgs& args) {
  return Guard(args.tag, [&] {
    if (options_.flat.algorithms.ring_reducescatter ||
        !HasRoomForBlocks(DTypeSize(args.wire_dtype()))) {
      return flat_.Reducescatter(args);
    }
    return DoReducescatter(args).WithContext("reducescatter");
  });
}

Status HierarchicalCollective::Alltoall(const AlltoallArgs& args) {
  return Guard(args.tag, [&] {
    if (options_.flat.algorithms.ring_alltoall) return flat_.Alltoall(args);
    return DoAlltoall(args).WithContext("alltoall");
  });
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

// Slots are laid out once: parts may become smaller.
std::vector<TunableRange> HierarchicalCollective::Tunables() const {
  if (options_.flat.algorithms.ring_allreduce) return {};
  const int64_t part = options_.stage.part_bytes;
  std::vector<TunableRange> ranges = {
      {Tunable::kPartBytes, static_cast<int64_t>(part_bytes_),
       std::max(part / kMaxTimes / kPartAlignment, int64_t{1}) * kPartAlignment,
       part}};
  if (placement_.num_lanes() > 1) {
    ranges.push_back(
        {Tunable::kOneLaneBytes, static_cast<int64_t>(one_lane_bytes_), 0,
         static_cast<int64_t>(options_.one_lane_bytes) * kMaxTimes});
  }
  if (groups_.size() > 1 || groups_.front() > 2) {
    ranges.push_back(PreferenceRange(preference_));
  }
  return ranges;
}

void HierarchicalCollective::Set(Tunable tunable, int64_t value) {
  if (tunable == Tunable::kPartBytes) {
    part_bytes_ = value / kPartAlignment * kPartAlignment;
  }
  if (tunable == Tunable::kOneLaneBytes) one_lane_bytes_ = value;
  if (tunable == Tunable::kAllreducePreference) {
    preference_ = static_cast<Preference>(value);
  }
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

Status HierarchicalCollective::DoAllreduce(const AllreduceArgs& args) {
  KR_RETURN_IF_ERROR(CheckReduction(args));
  HostSums sums(args, max_sums_);
  row_.Assign(args.tensors, sums.method().element_size,
              sums.method().wire_size);
  const int lanes = LanesFor(row_.count() * sums.size());
  const size_t lane_count = DivideUp(row_.count(), lanes);
  const StageParts parts = StageParts::Tapered(
      row_.count(), lanes, row_.wire_size(),
      PartSizesOf(lane_count * row_.wire_size(), part_bytes_,
                  placement_.max_ranks(), groups_, options_));
  TensorPlaces* const places = ReadsInPlace(sums.method()) ? &places_ : nullptr;
  if (places != nullptr) places->Publish(args.tensors);
  return Run(sums, parts, preference_, Traffic(), places);
}

bool HierarchicalCollective::ReadsInPlace(const FoldMethod& method) const {
  const size_t bytes = row_.count() * row_.element_size();
  return group_->size() > 1 && places_.possible() && method.codec == nullptr &&
         bytes >= options_.direct_bytes;
}

Status HierarchicalCollective::DoBroadcast(const BroadcastArgs& args) {
  KR_RETURN_IF_ERROR(CheckRoot(args, transport_->size()));
  std::vector<TensorSpan> tensors = args.tensors;
  if (transport_->rank() == args.root) {
    for (TensorSpan& tensor : tensors) {
      CopyIfApart(tensor.output, tensor.input, tensor.count);
      tensor.output = nullptr;
    }
  }
  row_.Assign(tensors, /*element_size=*/1);
  HostMoves moves(placement_, transport_->rank(), levels_, row_,
                  std::vector<int>(tensors.size(), args.root));
  Traffic traffic;
  traffic.kind = Traffic::Kind::kBroadcast;
  traffic.root = placement_.host(args.root);
  const StageParts parts =
      StageParts::Even(row_.count(), LanesFor(row_.count()), row_.wire_size(),
                       options_.stage.part_bytes);
  return Run(moves, parts, Preference::kByModel, traffic);
}

Status HierarchicalCollective::DoAllgather(const AllgatherArgs& args) {
  const size_t size = transport_->size();
  KR_RETURN_IF_ERROR(CheckSizes(args.bytes_per_rank.size(), size));
  const size_t rank = transport_->rank();
  std::vector<int64_t> counts(args.bytes_per_rank.begin(),
                              args.bytes_per_rank.end());
  std::vector<char*> blocks;
  char* output = static_cast<char*>(args.output);
  for (int64_t bytes : counts) {
    blocks.push_back(output);
    output = Advance(output, bytes);
  }
  CopyIfApart(blocks[rank], args.input, counts[rank]);
  const BlockRow row(placement_, counts, LanesFor(Sum(counts)),
                     /*wire_size=*/1, options_.stage.part_bytes);
  std::vector<TensorSpan> tensors;
  std::vector<int> sources;
  for (const BlockRow::Piece& piece : row.pieces()) {
    const bool own = piece.rank == transport_->rank();
    char* const block = Advance(blocks[piece.rank], piece.begin);
    tensors.push_back(
        {own ? block : nullptr, own ? nullptr : block, piece.count});
    sources.push_back(piece.rank);
  }
  row_.Assign(tensors, /*element_size=*/1);
  HostMoves moves(placement_, transport_->rank(), levels_, row_, sources);
  return Run(moves, row.parts(), Preference::kByModel,
             TrafficOf(Traffic::Kind::kAllgather, row));
}

Status HierarchicalCollective::DoReducescatter(const ReducescatterArgs& args) {
  KR_RETURN_IF_ERROR(CheckReducescatter(args, transport_->size()));
  HostSums sums(args, max_sums_);
  const size_t element_size = sums.method().element_size;
  std::vector<const char*> blocks;
  const char* input = static_cast<const char*>(args.input);
  for (int64_t count : args.count_per_rank) {
    blocks.push_back(input);
    input = Advance(input, count * element_size);
  }
  const size_t bytes = Sum(args.count_per_rank) * sums.size();
  const BlockRow row(placement_, args.count_per_rank, LanesFor(bytes),
                     sums.method().wire_size, options_.stage.part_bytes);
  std::vector<TensorSpan> tensors;
  for (const BlockRow::Piece& piece : row.pieces()) {
    const size_t offset = piece.begin * element_size;
    const bool own = piece.rank == transport_->rank();
    tensors.push_back(
        {Advance(blocks[piece.rank], offset),
         own ? Advance(static_cast<char*>(args.output), offset) : nullptr,
         piece.count});
  }
  row_.Assign(tensors, element_size, sums.method().wire_size);
  return Run(sums, row.parts(), Preference::kByModel,
             TrafficOf(Traffic::Kind::kReducescatter, row));
}

Status HierarchicalCollective::DoAlltoall(const AlltoallArgs& args) {
  KR_RETURN_IF_ERROR(CheckAlltoall(args, transport_->size()));
  HostAlltoall alltoall(placement_, *transport_, streams_, next_chunk_, args,
                        alltoall_scratch_);
  if (transport_->size() <= options_.flat.max_exchange_ranks) {
    return alltoall.RunDirect();
  }
  if (alltoall_steps_.empty()) {
    alltoall_steps_ = PlanAlltoall(
        placement_.host(transport_->rank()), placement_.num_hosts(),
        AlltoallSide(placement_.num_hosts(), options_));
  }
  return alltoall.RunByLanes(alltoall_steps_);
}

int HierarchicalCollective::LanesFor(size_t bytes) const {
  return bytes <= one_lane_bytes_ ? 1 : placement_.num_lanes();
}

bool HierarchicalCollective::HasRoomForBlocks(size_t wire_size) const {
  return BlockRow::Fits(placement_, wire_size, options_.stage.part_bytes);
}

Traffic HierarchicalCollective::TrafficOf(Traffic::Kind kind,
                                          const BlockRow& row) const {
  Traffic traffic;
  traffic.kind = kind;
  traffic.part = [&row, lane = group_->local_rank()](int64_t chunk, int begin,
                                                     int end) {
    return row.Slices(chunk, lane, begin, end);
  };
  return traffic;
}

Status HierarchicalCollective::Run(HostMethod& method, const StageParts& parts,
                                   Preference preference,
                                   const Traffic& traffic,
                                   TensorPlaces* places) {
  if (row_.count() == 0) return OkStatus();
  const size_t bytes = row_.count() * row_.element_size();
  HostStage stage(*group_, slots_, barrier_, row_, method, parts, places,
                  next_chunk_, meter_,
                  bytes >= options_.helper_bytes ? helper_.get() : nullptr);
  next_chunk_ += parts.num_chunks();
  if (group_->local_rank() >= parts.lanes()) return RunStage(stage);
  // Chunks follow each other: their total size counts.
  const std::vector<Range> chunks = parts.PartsOf(group_->local_rank());
  int64_t count = 0;
  for (const Range& chunk : chunks) count += chunk.count();
  LevelsShape shape;
  shape.lag = options_.stage.lag();
  shape.is_small =
      AllreduceTakesFewHops(options_.flat.algorithms.links, preference, groups_,
                            count * method.size());
  shape.traffic = traffic;
  meter_.TraceAlgorithm(barrier_.tag(), shape.is_small
                                            ? "hierarchy, one_shot"
                                            : "hierarchy, two_shots");
  return RunLane(stage, method, chunks, shape);
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

Status HierarchicalCollective::RunLane(HostStage& stage, HostMethod& method,
                                       const std::vector<Range>& chunks,
                                       const LevelsShape& shape) {
  LevelsRun run(levels_, placement_.Lane(group_->local_rank()), chunks, shape,
                stage, method.method(), row_, scratch_, meter_);
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
