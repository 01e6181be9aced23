#include "csrc/collective/cpu_collective.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "csrc/collective/arguments.h"
#include "csrc/collective/reduce.h"

namespace keras_ring {
namespace {

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

void CpuCollective::Abort(const Status& cause) {
  if (broken_.Set(cause)) transport_.Abort(cause);
}

Status CpuCollective::DoAllreduce(const AllreduceArgs& args) {
  KR_RETURN_IF_ERROR(CheckReduction(args));
  const WideFormat& format = *FindWideFormat(args.dtype, args.op);
  const RoundLimits limits{options_.fusion_buffer_bytes, options_.direct_bytes};
  for (const Round& round : PlanRounds(args.tensors, format, limits)) {
    KR_RETURN_IF_ERROR(round.direct ? RunDirect(args, format, round)
                                    : RunPacked(args, format, round));
  }
  return OkStatus();
}

Status CpuCollective::RunDirect(const AllreduceArgs& args,
                                const WideFormat& format, const Round& round) {
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
                                const WideFormat& format, const Round& round) {
  const size_t value_size = DTypeSize(args.dtype);
  KR_ASSIGN_OR_RETURN(
      void* wide, fusion_buffer_.Reserve(round.count * format.element_size));
  int64_t position = 0;
  for (const Piece& piece : round.pieces) {
    format.pack(
        Advance(wide, position, format.element_size),
        Advance(args.tensors[piece.tensor].input, piece.begin, value_size),
        piece.count, args.prescale);
    position += piece.count;
  }
  KR_RETURN_IF_ERROR(ReduceRing(
      args, format, RingBuffer{wide, wide, round.count, format.element_size}));
  position = 0;
  for (const Piece& piece : round.pieces) {
    format.unpack(
        Advance(args.tensors[piece.tensor].output, piece.begin, value_size),
        Advance(wide, position, format.element_size), piece.count);
    position += piece.count;
  }
  return OkStatus();
}

Status CpuCollective::ReduceRing(const AllreduceArgs& args,
                                 const WideFormat& format,
                                 const RingBuffer& buffer) {
  const Finish finish = FinishOf(args);
  if (place_.size == 1) {
    format.finish(buffer.output, buffer.count, finish);
    return OkStatus();
  }
  KR_ASSIGN_OR_RETURN(void* arrivals,
                      arrivals_.Reserve(SegmentBytes(
                          buffer.element_size, options_.max_segment_bytes)));
  RingReduction plan = PlanRingAllreduce(place_, args.tag, buffer, arrivals,
                                         options_.max_segment_bytes);
  return RunReduction(plan, format, args.op, finish);
}

Status CpuCollective::RunReduction(RingReduction& plan,
                                   const WideFormat& format, ReduceOp op,
                                   const Finish& finish) {
  const ReduceKernel reduce = FindReduceKernel(format.dtype, op);
  // The owner of a chunk finishes it: while it is in cache, once instead of on
  // every rank, and alike for all.
  plan.duplex.on_received = [&plan, &format, &finish, reduce](size_t i) {
    if (i < plan.reductions.size()) {
      const SegmentReduction& reduction = plan.reductions[i];
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
  KR_RETURN_IF_ERROR(CheckSizes(args.bytes_per_rank.size(), place_.size));
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
  KR_RETURN_IF_ERROR(CheckRoot(args, place_.size));
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

Status CpuCollective::DoReducescatter(const ReducescatterArgs& args) {
  KR_RETURN_IF_ERROR(CheckReduction(args));
  KR_RETURN_IF_ERROR(CheckSizes(args.count_per_rank.size(), place_.size));
  const WideFormat& format = *FindWideFormat(args.dtype, args.op);
  const int64_t longest =
      *std::max_element(args.count_per_rank.begin(), args.count_per_rank.end());
  const int64_t slice = std::max<int64_t>(
      1, options_.fusion_buffer_bytes / format.element_size / place_.size);
  for (int64_t begin = 0; begin < longest; begin += slice) {
    KR_RETURN_IF_ERROR(ReducescatterSlice(args, begin, slice));
  }
  return OkStatus();
}

Status CpuCollective::ReducescatterSlice(const ReducescatterArgs& args,
                                         int64_t begin, int64_t count) {
  const WideFormat& format = *FindWideFormat(args.dtype, args.op);
  const size_t value_size = DTypeSize(args.dtype);
  auto in_slice = [&](int rank) {
    return std::clamp<int64_t>(args.count_per_rank[rank] - begin, 0, count);
  };
  RingBuffer buffer;
  buffer.element_size = format.element_size;
  for (int rank = 0; rank < place_.size; ++rank) buffer.count += in_slice(rank);
  KR_ASSIGN_OR_RETURN(
      void* wide, fusion_buffer_.Reserve(buffer.count * format.element_size));
  buffer.input = buffer.output = wide;
  // Chunk c is the block of rank c - 1, where it ends.
  std::vector<int64_t> chunk_counts(place_.size);
  void* own = nullptr;
  void* at = wide;
  for (int chunk = 0; chunk < place_.size; ++chunk) {
    const int rank = (chunk + place_.size - 1) % place_.size;
    int64_t block = begin;
    for (int r = 0; r < rank; ++r) block += args.count_per_rank[r];
    chunk_counts[chunk] = in_slice(rank);
    format.pack(at, Advance(args.input, block, value_size), chunk_counts[chunk],
                args.prescale);
    if (rank == place_.rank) own = at;
    at = Advance(at, chunk_counts[chunk], format.element_size);
  }
  const Finish finish = FinishOf(args);
  if (place_.size == 1) {
    format.finish(wide, buffer.count, finish);
  } else {
    KR_ASSIGN_OR_RETURN(void* arrivals,
                        arrivals_.Reserve(SegmentBytes(
                            buffer.element_size, options_.max_segment_bytes)));
    RingReduction plan =
        PlanRingReducescatter(place_, args.tag, buffer, chunk_counts, arrivals,
                              options_.max_segment_bytes);
    KR_RETURN_IF_ERROR(RunReduction(plan, format, args.op, finish));
  }
  format.unpack(Advance(args.output, begin, value_size), own,
                in_slice(place_.rank));
  return OkStatus();
}

Status CpuCollective::DoAlltoall(const AlltoallArgs& args) {
  KR_RETURN_IF_ERROR(CheckSizes(args.bytes.size(), place_.size * place_.size));
  size_t input_begin = 0;
  size_t output_begin = 0;
  for (int rank = 0; rank < place_.rank; ++rank) {
    input_begin += args.bytes[place_.rank * place_.size + rank];
    output_begin += args.bytes[rank * place_.size + place_.rank];
  }
  CopyIfApart(Advance(args.output, output_begin, 1),
              Advance(args.input, input_begin, 1),
              args.bytes[place_.rank * place_.size + place_.rank]);
  KR_ASSIGN_OR_RETURN(
      void* transit,
      fusion_buffer_.Reserve(AlltoallTransitBytes(place_, args.bytes)));
  Duplex duplex =
      PlanRingAlltoall(place_, args.tag, args.input, args.output, args.bytes,
                       transit, options_.max_segment_bytes);
  if (duplex.sends.empty() && duplex.receives.empty()) return OkStatus();
  return transport_.Run(duplex);
}

}  // namespace keras_ring
