#include "csrc/collective/net/cpu_collective.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/collective/arguments.h"
#include "csrc/collective/net/direct.h"
#include "csrc/collective/net/exchange_run.h"
#include "csrc/collective/reduction_kernels.h"

namespace keras_ring {
namespace {

// The limit of steps of an exchange that are in flight.
constexpr int64_t kExchangeLag = 4;

// How much less, and how much more, than by default an exchange may hold.
constexpr int64_t kMaxTimes = 16;

// The alignment of a step: whole cache lines of any dtype.
constexpr int64_t kStepAlignment = 64;

}  // namespace

std::vector<int> CpuCollectivePeers(int rank, int size,
                                    const CpuCollectiveOptions& options) {
  std::set<int> peers;
  if (size <= options.max_exchange_ranks) {
    for (int peer = 0; peer < size; ++peer) peers.insert(peer);
  } else {
    const RingPlace place = RingPlaceOf(rank, size, options.ring_order);
    for (int step : {1, size - 1}) {
      peers.insert(place.RankAt((place.position + step) % size));
    }
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

CpuCollective::CpuCollective(Transport& transport,
                             const CpuCollectiveOptions& options,
                             const Meter& meter)
    : transport_(transport),
      options_(options),
      rank_(transport.rank()),
      place_(RingPlaceOf(rank_, transport.size(), options.ring_order)),
      meter_(meter),
      adasum_(options.algorithms.adasum_round) {}

CpuCollective::CpuCollective(std::unique_ptr<Transport> transport,
                             const CpuCollectiveOptions& options,
                             const Meter& meter)
    : owned_transport_(std::move(transport)),
      transport_(*owned_transport_),
      options_(options),
      rank_(transport_.rank()),
      place_(RingPlaceOf(rank_, transport_.size(), options.ring_order)),
      meter_(meter),
      adasum_(options.algorithms.adasum_round) {}

Status CpuCollective::Allreduce(const AllreduceArgs& args) {
  if (args.op == ReduceOp::kAdasum) {
    return adasum_.Allreduce(args, rank_, place_.size, *this);
  }
  return broken_.Run(
      [&] { return DoAllreduce(args).WithContext("allreduce"); });
}

Status CpuCollective::Allgather(const AllgatherArgs& args) {
  return broken_.Run(
      [&] { return DoAllgather(args).WithContext("allgather"); });
}

Status CpuCollective::Reducescatter(const ReducescatterArgs& args) {
  return broken_.Run(
      [&] { return DoReducescatter(args).WithContext("reducescatter"); });
}

Status CpuCollective::Alltoall(const AlltoallArgs& args) {
  return broken_.Run([&] { return DoAlltoall(args).WithContext("alltoall"); });
}

Status CpuCollective::Broadcast(const BroadcastArgs& args) {
  return broken_.Run(
      [&] { return DoBroadcast(args).WithContext("broadcast"); });
}

std::string CpuCollective::Explain() const {
  const std::string ranks = std::to_string(place_.size) + " ranks";
  if (!exchanges() || options_.algorithms.ring_allreduce) {
    return "a ring of " + ranks + "\n";
  }
  const Algorithms& algorithms = options_.algorithms;
  return ranks + ", which exchange with each other\n" +
         (place_.size == 2
              ? ExplainPair(algorithms.links, algorithms.allreduce,
                            "an allreduce")
              : ExplainAllreduce(algorithms.links, algorithms.allreduce,
                                 {place_.size}, "an allreduce"));
}

std::vector<TunableRange> CpuCollective::Tunables() const {
  if (!exchanges() || options_.algorithms.ring_allreduce) return {};
  const int64_t bytes = options_.exchange_bytes;
  std::vector<TunableRange> ranges = {
      {Tunable::kExchangeBytes, static_cast<int64_t>(exchange_bytes_),
       std::max<int64_t>(1, bytes / kMaxTimes), bytes * kMaxTimes}};
  ranges.push_back(PreferenceRange(preference_));
  return ranges;
}

void CpuCollective::Set(Tunable tunable, int64_t value) {
  if (tunable == Tunable::kExchangeBytes) exchange_bytes_ = value;
  if (tunable == Tunable::kAllreducePreference) {
    preference_ = static_cast<Preference>(value);
  }
}

void CpuCollective::Abort(const Status& cause) {
  if (broken_.Set(cause)) transport_.Abort(cause);
}

Status CpuCollective::DoAllreduce(const AllreduceArgs& args) {
  KR_RETURN_IF_ERROR(CheckReduction(args));
  if (exchanges() && !options_.algorithms.ring_allreduce) {
    return ExchangeAllreduce(args);
  }
  meter_.TraceAlgorithm(args.tag, "ring");
  const ReductionKernels method(args);
  const RoundLimits limits{options_.fusion_buffer_bytes, options_.direct_bytes};
  for (const Round& round : PlanRounds(args.tensors, method.format, limits)) {
    KR_RETURN_IF_ERROR(round.direct ? RunDirect(args, method, round)
                                    : RunPacked(args, method, round));
  }
  return OkStatus();
}

Status CpuCollective::ExchangeAllreduce(const AllreduceArgs& args) {
  const FoldMethod method(args);
  row_.Assign(args.tensors, method.element_size, method.wire_size);
  if (row_.count() == 0) return OkStatus();
  const size_t bytes = row_.count() * method.wire_size;
  const LinkModel& links = options_.algorithms.links;
  const bool one_shot =
      place_.size == 2
          ? PairTakesFewHops(links, preference_, bytes)
          : AllreduceTakesFewHops(links, preference_, {place_.size}, bytes);
  meter_.TraceAlgorithm(args.tag, one_shot ? "one_shot" : "two_shots");
  const ExchangeShape shape = ShapeFor(method);
  return RunExchange(one_shot ? PlanOneShot(shape, row_.count())
                              : PlanTwoShots(shape, row_.count()),
                     method, args.tag);
}

Status CpuCollective::ExchangeReducescatter(const ReducescatterArgs& args) {
  const FoldMethod method(args);
  std::vector<TensorSpan> blocks;
  std::vector<Range> parts;
  int64_t begin = 0;
  for (int rank = 0; rank < place_.size; ++rank) {
    const int64_t count = args.count_per_rank[rank];
    blocks.push_back({Advance(args.input, begin, method.element_size),
                      rank == rank_ ? args.output : nullptr, count});
    parts.push_back({begin, begin + count});
    begin += count;
  }
  row_.Assign(blocks, method.element_size, method.wire_size);
  if (row_.count() == 0) return OkStatus();
  return RunExchange(PlanReduceScatter(ShapeFor(method), parts), method,
                     args.tag);
}

ExchangeShape CpuCollective::ShapeFor(const FoldMethod& method) const {
  const size_t bytes =
      std::min(exchange_bytes_ / (kExchangeLag * (place_.size - 1)),
               options_.max_segment_bytes);
  const int64_t count = bytes / method.wire_size;
  return {rank_, place_.size,
          std::max<int64_t>(1, count < kStepAlignment
                                   ? count
                                   : count / kStepAlignment * kStepAlignment),
          kExchangeLag};
}

Status CpuCollective::RunExchange(const ExchangeSchedule& schedule,
                                  const FoldMethod& method, uint64_t tag) {
  const size_t bytes = row_.count() * method.element_size;
  const bool staged = bytes < row_.num_tensors() * options_.staged_bytes;
  ExchangeBinding binding{method, row_};
  binding.staged = staged;
  ExchangeRun run(schedule, binding, exchange_buffer_, meter_);
  KR_ASSIGN_OR_RETURN(SendReceivePlan plan, run.Plan(tag));
  return transport_.Run(plan);
}

Status CpuCollective::Run(SendReceivePlan plan) {
  return plan.empty() ? OkStatus() : transport_.Run(plan);
}

Status CpuCollective::RunDirect(const AllreduceArgs& args,
                                const ReductionKernels& method,
                                const Round& round) {
  const Piece& piece = round.pieces.front();
  const TensorSpan& tensor = args.tensors[piece.tensor];
  RingBuffer buffer;
  buffer.element_size = method.format.element_size;
  buffer.input = Advance(tensor.input, piece.begin, buffer.element_size);
  buffer.output = Advance(tensor.output, piece.begin, buffer.element_size);
  buffer.count = piece.count;
  // The ring itself gets from input to output, but not with a scale, nor when
  // there is none to go round.
  if (args.prescale != 1.0 || place_.size == 1) {
    const TimedPhase time = Time(TracePhase::kPack, args.tag);
    method.Pack(buffer.output, buffer.input, buffer.count);
    buffer.input = buffer.output;
  }
  return ReduceRing(args.tag, method, buffer);
}

Status CpuCollective::RunPacked(const AllreduceArgs& args,
                                const ReductionKernels& method,
                                const Round& round) {
  void* values;
  KR_ASSIGN_OR_RETURN(const RingBuffer buffer,
                      ReserveBuffer(method, round.count, &values));
  const size_t value_size = method.format.value_size;
  {
    const TimedPhase time = Time(TracePhase::kPack, args.tag);
    int64_t position = 0;
    for (const Piece& piece : round.pieces) {
      method.Pack(Advance(values, position, value_size),
                  Advance(args.tensors[piece.tensor].input, piece.begin,
                          method.tensor_size),
                  piece.count);
      position += piece.count;
    }
  }
  KR_RETURN_IF_ERROR(ReduceRing(args.tag, method, buffer));
  const TimedPhase time = Time(TracePhase::kUnpack, args.tag);
  int64_t position = 0;
  for (const Piece& piece : round.pieces) {
    method.Unpack(Advance(args.tensors[piece.tensor].output, piece.begin,
                          method.tensor_size),
                  Advance(values, position, value_size), piece.count);
    position += piece.count;
  }
  return OkStatus();
}

Result<RingBuffer> CpuCollective::ReserveBuffer(const ReductionKernels& method,
                                                int64_t count, void** values) {
  const AccumulatorFormat& format = method.format;
  const size_t sum_bytes = count * format.element_size;
  const size_t value_bytes = format.converts ? count * format.value_size : 0;
  KR_ASSIGN_OR_RETURN(void* sums,
                      fusion_buffer_.Reserve(sum_bytes + value_bytes));
  RingBuffer buffer{sums, sums, count, format.element_size};
  *values = sums;
  if (format.converts) {
    buffer.values = *values = Advance(sums, sum_bytes, 1);
    buffer.value_size = format.value_size;
  }
  return buffer;
}

Result<void*> CpuCollective::ReserveArrivals(size_t element_size) {
  return arrivals_.Reserve(
      2 * SegmentBytes(element_size, options_.max_segment_bytes));
}

Status CpuCollective::ReduceRing(uint64_t tag, const ReductionKernels& method,
                                 const RingBuffer& buffer) {
  if (place_.size == 1) {
    const TimedPhase time = Time(TracePhase::kReduce, tag);
    if (method.format.converts) {
      method.Widen(buffer.output, buffer.values, buffer.count);
    }
    method.FinishSums(buffer.output, buffer.values, buffer.count);
    return OkStatus();
  }
  KR_ASSIGN_OR_RETURN(void* arrivals, ReserveArrivals(buffer.element_size));
  RingReduction plan = PlanRingAllreduce(place_, tag, buffer, arrivals,
                                         options_.max_segment_bytes);
  return RunReduction(plan, method, arrivals);
}

Status CpuCollective::RunReduction(RingReduction& plan,
                                   const ReductionKernels& method,
                                   void* arrivals) {
  const size_t element_size = method.format.element_size;
  void* const widened = Advance(
      arrivals, SegmentBytes(element_size, options_.max_segment_bytes), 1);
  // The owner of a chunk finishes it: while it is in cache, once instead of on
  // every rank, and with the same result for all.
  const auto reduce = [&](size_t i) {
    const TimedPhase time = Time(TracePhase::kReduce, plan.duplex.tag);
    const SegmentReduction& step = plan.reductions[i];
    const void* value = step.value;
    if (method.format.converts) {
      method.Widen(step.accumulator, step.own, step.count);
      if (i < plan.first_sum) {
        method.Widen(widened, step.value, step.count);
        value = widened;
      }
    }
    method.reduce(step.accumulator, value, step.count);
    if (i >= plan.first_owned) {
      method.FinishSums(step.accumulator, step.own, step.count);
    }
  };
  plan.duplex.advance = [&plan, &reduce,
                         reduced = size_t{0}](SendReceivePlan& duplex) mutable {
    if (duplex.incoming.empty()) return;
    for (; reduced < duplex.incoming[0].received; ++reduced) {
      if (reduced < plan.reductions.size()) reduce(reduced);
    }
    plan.Release(reduced, duplex);
  };
  return transport_.Run(plan.duplex);
}

Status CpuCollective::DoAllgather(const AllgatherArgs& args) {
  KR_RETURN_IF_ERROR(CheckSizes(args.bytes_per_rank.size(), place_.size));
  size_t begin = 0;
  for (int rank = 0; rank < rank_; ++rank) {
    begin += args.bytes_per_rank[rank];
  }
  const size_t own_bytes = args.bytes_per_rank[rank_];
  CopyIfApart(Advance(args.output, begin, 1), args.input, own_bytes);
  if (exchanges() && !options_.algorithms.ring_allgather) {
    return Run(PlanDirectAllgather(rank_, args));
  }
  return Run(PlanRingAllgather(place_, args.tag, args.output,
                               args.bytes_per_rank,
                               options_.max_segment_bytes));
}

Status CpuCollective::DoBroadcast(const BroadcastArgs& args) {
  KR_RETURN_IF_ERROR(CheckRoot(args, place_.size));
  size_t bytes = 0;
  for (const TensorSpan& tensor : args.tensors) bytes += tensor.count;
  const bool direct =
      exchanges() &&
      BroadcastTakesFewHops(options_.algorithms.links,
                            options_.algorithms.broadcast, place_.size, bytes,
                            options_.max_segment_bytes);
  KR_RETURN_IF_ERROR(
      Run(direct ? PlanDirectBroadcast(rank_, place_.size, args)
                 : PlanChainBroadcast(place_, args.tag, args.root, args.tensors,
                                      options_.max_segment_bytes)));
  if (rank_ == args.root) {
    for (const TensorSpan& tensor : args.tensors) {
      CopyIfApart(tensor.output, tensor.input, tensor.count);
    }
  }
  return OkStatus();
}

Status CpuCollective::DoReducescatter(const ReducescatterArgs& args) {
  KR_RETURN_IF_ERROR(CheckReducescatter(args, place_.size));
  if (exchanges() && !options_.algorithms.ring_reducescatter) {
    return ExchangeReducescatter(args);
  }
  const ReductionKernels method(args);
  const int64_t longest =
      *std::max_element(args.count_per_rank.begin(), args.count_per_rank.end());
  const int64_t slice =
      std::max<int64_t>(1, options_.fusion_buffer_bytes /
                               method.format.packed_size() / place_.size);
  for (int64_t begin = 0; begin < longest; begin += slice) {
    KR_RETURN_IF_ERROR(ReducescatterSlice(args, method, begin, slice));
  }
  return OkStatus();
}

Status CpuCollective::ReducescatterSlice(const ReducescatterArgs& args,
                                         const ReductionKernels& method,
                                         int64_t begin, int64_t count) {
  auto in_slice = [&](int rank) {
    return std::clamp<int64_t>(args.count_per_rank[rank] - begin, 0, count);
  };
  int64_t total = 0;
  for (int rank = 0; rank < place_.size; ++rank) total += in_slice(rank);
  void* values;
  KR_ASSIGN_OR_RETURN(const RingBuffer buffer,
                      ReserveBuffer(method, total, &values));
  // Chunk c is the block of position c - 1, where it ends.
  std::vector<int64_t> chunk_counts(place_.size);
  void* own = nullptr;
  void* at = values;
  for (int chunk = 0; chunk < place_.size; ++chunk) {
    const int rank = place_.RankAt((chunk + place_.size - 1) % place_.size);
    int64_t block = begin;
    for (int r = 0; r < rank; ++r) block += args.count_per_rank[r];
    chunk_counts[chunk] = in_slice(rank);
    {
      const TimedPhase time = Time(TracePhase::kPack, args.tag);
      method.Pack(at, Advance(args.input, block, method.tensor_size),
                  chunk_counts[chunk]);
    }
    if (rank == rank_) own = at;
    at = Advance(at, chunk_counts[chunk], method.format.value_size);
  }
  if (place_.size == 1) {
    KR_RETURN_IF_ERROR(ReduceRing(args.tag, method, buffer));
  } else {
    KR_ASSIGN_OR_RETURN(void* arrivals, ReserveArrivals(buffer.element_size));
    RingReduction plan =
        PlanRingReducescatter(place_, args.tag, buffer, chunk_counts, arrivals,
                              options_.max_segment_bytes);
    KR_RETURN_IF_ERROR(RunReduction(plan, method, arrivals));
  }
  const TimedPhase time = Time(TracePhase::kUnpack, args.tag);
  method.Unpack(Advance(args.output, begin, method.tensor_size), own,
                in_slice(rank_));
  return OkStatus();
}

Status CpuCollective::DoAlltoall(const AlltoallArgs& args) {
  KR_RETURN_IF_ERROR(CheckAlltoall(args, place_.size));
  size_t input_begin = 0;
  size_t output_begin = 0;
  for (int rank = 0; rank < rank_; ++rank) {
    input_begin += args.bytes(rank_, rank);
    output_begin += args.bytes(rank, rank_);
  }
  CopyIfApart(Advance(args.output, output_begin, 1),
              Advance(args.input, input_begin, 1), args.bytes(rank_, rank_));
  if (exchanges() && !options_.algorithms.ring_alltoall) {
    return Run(PlanDirectAlltoall(rank_, place_.size, args));
  }
  KR_ASSIGN_OR_RETURN(void* transit, fusion_buffer_.Reserve(
                                         AlltoallTransitBytes(place_, args)));
  return Run(
      PlanRingAlltoall(place_, args, transit, options_.max_segment_bytes));
}

}  // namespace keras_ring
