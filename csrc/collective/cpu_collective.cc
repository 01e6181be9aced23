#include "csrc/collective/cpu_collective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "csrc/collective/reduce.h"

namespace keras_ring {
namespace {

Status Validate(const AllreduceArgs& args) {
  if (!IsReducible(args.dtype)) {
    return InvalidArgumentError(std::string("cannot reduce ") +
                                DTypeName(args.dtype) + " tensors");
  }
  if (args.divisor < 1) {
    return InvalidArgumentError("the divisor must be at least 1, not " +
                                std::to_string(args.divisor));
  }
  if (IsInteger(args.dtype) &&
      (args.prescale != 1.0 || args.postscale != 1.0)) {
    return InvalidArgumentError(std::string("cannot scale ") +
                                DTypeName(args.dtype) + " tensors");
  }
  return OkStatus();
}

Finish FinishOf(const AllreduceArgs& args) {
  return Finish{args.op == ReduceOp::kAverage ? args.divisor : 1,
                args.postscale};
}

// Copies a tensor of `bytes` unless it is in place or empty.
void CopyIfApart(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

template <typename Byte>
Byte* Advance(Byte* data, int64_t count, size_t element_size) {
  using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
  return static_cast<Char*>(data) + count * element_size;
}

}  // namespace

CpuCollective::CpuCollective(Transport& transport,
                             const CpuCollectiveOptions& options)
    : transport_(transport),
      options_(options),
      place_{transport.rank(), transport.size()} {}

Status CpuCollective::Allreduce(const AllreduceArgs& args) {
  return Guard([&] { return DoAllreduce(args).WithContext("allreduce"); });
}

Status CpuCollective::Allgather(const AllgatherArgs& args) {
  return Guard([&] { return DoAllgather(args).WithContext("allgather"); });
}

Status CpuCollective::Broadcast(const BroadcastArgs& args) {
  return Guard([&] { return DoBroadcast(args).WithContext("broadcast"); });
}

void CpuCollective::Abort(const Status& cause) {
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return;
    broken_ = cause;
  }
  transport_.Abort(cause);
}

Status CpuCollective::Guard(const std::function<Status()>& collective) {
  {
    MutexLock lock(mutex_);
    if (!broken_.ok()) return broken_;
  }
  Status status = collective();
  MutexLock lock(mutex_);
  // After an abort the call fails with the cause, not with its consequence;
  // and even if it has just succeeded: its peers may have failed.
  if (broken_.ok()) broken_ = std::move(status);
  return broken_;
}

Status CpuCollective::DoAllreduce(const AllreduceArgs& args) {
  KR_RETURN_IF_ERROR(Validate(args));
  const WireFormat& format = *FindWireFormat(args.dtype, args.op);
  const RoundLimits limits{options_.fusion_buffer_bytes, options_.direct_bytes};
  for (const Round& round : PlanRounds(args.tensors, format, limits)) {
    KR_RETURN_IF_ERROR(round.direct ? RunDirect(args, format, round)
                                    : RunPacked(args, format, round));
  }
  return OkStatus();
}

Status CpuCollective::RunDirect(const AllreduceArgs& args,
                                const WireFormat& format, const Round& round) {
  const Piece& piece = round.pieces.front();
  const TensorSpan& tensor = args.tensors[piece.tensor];
  RingBuffer buffer;
  buffer.input = Advance(tensor.input, piece.begin, format.element_size);
  buffer.output = Advance(tensor.output, piece.begin, format.element_size);
  buffer.count = piece.count;
  buffer.element_size = format.element_size;
  // The ring itself gets from input to output, but not with a scale, nor when
  // there is none to go round.
  if (args.prescale != 1.0 || place_.size == 1) {
    format.pack(buffer.output, buffer.input, buffer.count, args.prescale);
    buffer.input = buffer.output;
  }
  return ReduceRing(args, format, buffer);
}

Status CpuCollective::RunPacked(const AllreduceArgs& args,
                                const WireFormat& format, const Round& round) {
  const size_t value_size = DTypeSize(args.dtype);
  KR_ASSIGN_OR_RETURN(
      void* wire, fusion_buffer_.Reserve(round.count * format.element_size));
  int64_t position = 0;
  for (const Piece& piece : round.pieces) {
    format.pack(
        Advance(wire, position, format.element_size),
        Advance(args.tensors[piece.tensor].input, piece.begin, value_size),
        piece.count, args.prescale);
    position += piece.count;
  }
  KR_RETURN_IF_ERROR(ReduceRing(
      args, format, RingBuffer{wire, wire, round.count, format.element_size}));
  position = 0;
  for (const Piece& piece : round.pieces) {
    format.unpack(
        Advance(args.tensors[piece.tensor].output, piece.begin, value_size),
        Advance(wire, position, format.element_size), piece.count);
    position += piece.count;
  }
  return OkStatus();
}

Status CpuCollective::ReduceRing(const AllreduceArgs& args,
                                 const WireFormat& format,
                                 const RingBuffer& buffer) {
  const Finish finish = FinishOf(args);
  if (place_.size == 1) {
    format.finish(buffer.output, buffer.count, finish);
    return OkStatus();
  }
  KR_ASSIGN_OR_RETURN(void* arrivals,
                      arrivals_.Reserve(SegmentBytes(
                          buffer.element_size, options_.max_segment_bytes)));
  RingAllreduce plan = PlanRingAllreduce(place_, args.tag, buffer, arrivals,
                                         options_.max_segment_bytes);
  const ReduceKernel reduce = FindReduceKernel(format.dtype, args.op);
  // The owner of a chunk finishes it: while it is in cache, once instead of on
  // every rank, and alike for all.
  plan.duplex.on_received = [&plan, &format, &finish, reduce](size_t i) {
    if (i < plan.reductions.size()) {
      const Reduction& reduction = plan.reductions[i];
      reduce(reduction.accumulator, reduction.value, reduction.count);
      if (i >= plan.first_owned) {
        format.finish(reduction.accumulator, reduction.count, finish);
      }
    }
    return plan.ReleasedBy(i);
  };
  return transport_.Run(plan.duplex);
}

Status CpuCollective::DoAllgather(const AllgatherArgs& args) {
  if (args.bytes_per_rank.size() != static_cast<size_t>(place_.size)) {
    return InvalidArgumentError(
        "sizes for " + std::to_string(args.bytes_per_rank.size()) +
        " ranks were given to a group of " + std::to_string(place_.size));
  }
  size_t begin = 0;
  for (int rank = 0; rank < place_.rank; ++rank) {
    begin += args.bytes_per_rank[rank];
  }
  const size_t own_bytes = args.bytes_per_rank[place_.rank];
  CopyIfApart(Advance(args.output, begin, 1), args.input, own_bytes);
  Duplex duplex =
      PlanRingAllgather(place_, args.tag, args.output, args.bytes_per_rank,
                        options_.max_segment_bytes);
  if (duplex.sends.empty() && duplex.receives.empty()) return OkStatus();
  return transport_.Run(duplex);
}

Status CpuCollective::DoBroadcast(const BroadcastArgs& args) {
  if (args.root < 0 || args.root >= place_.size) {
    return InvalidArgumentError("root " + std::to_string(args.root) +
                                " is not a rank of a group of " +
                                std::to_string(place_.size));
  }
  Duplex duplex = PlanChainBroadcast(place_, args.tag, args.root, args.tensors,
                                     options_.max_segment_bytes);
  if (!duplex.sends.empty() || !duplex.receives.empty()) {
    KR_RETURN_IF_ERROR(transport_.Run(duplex));
  }
  if (place_.rank == args.root) {
    for (const TensorSpan& tensor : args.tensors) {
      CopyIfApart(tensor.output, tensor.input, tensor.count);
    }
  }
  return OkStatus();
}

}  // namespace keras_ring
