#include "csrc/collective/hierarchy/host_alltoall.h"

#include <algorithm>
#include <cstring>

#include "csrc/collective/net/direct.h"
#include "csrc/collective/reduction_kernels.h"
#include "csrc/collective/spans.h"

namespace keras_ring {
namespace {

// Without the streams for which predicate(stream) holds.
template <typename Predicate>
void Drop(SendReceivePlan& plan, const Predicate& predicate) {
  const auto drop = [&](auto& streams) {
    streams.erase(std::remove_if(streams.begin(), streams.end(), predicate),
                  streams.end());
  };
  drop(plan.outgoing);
  drop(plan.incoming);
}

// All segments may move from the start.
void ReleaseAll(SendReceivePlan& plan) {
  Drop(plan, [](const auto& stream) { return stream.segments.empty(); });
  for (Outgoing& each : plan.outgoing) each.released = each.segments.size();
  for (Incoming& each : plan.incoming) each.allowed = each.segments.size();
}

}  // namespace

HostAlltoall::HostAlltoall(const Placement& placement, Transport& transport,
                           const SlotStreams& streams, uint64_t& next_chunk,
                           const AlltoallArgs& args,
                           std::deque<ScratchBuffer>& scratch)
    : placement_(placement),
      transport_(transport),
      streams_(streams),
      next_chunk_(next_chunk),
      args_(args),
      scratch_(scratch),
      rank_(transport.rank()),
      size_(transport.size()),
      host_(placement.host(rank_)),
      local_rank_(placement.local_rank(rank_)),
      locals_(placement.ranks(host_)),
      input_begins_(size_ + 1),
      output_begins_(size_ + 1) {
  for (int peer = 0; peer < size_; ++peer) {
    input_begins_[peer + 1] = input_begins_[peer] + Bytes(rank_, peer);
    output_begins_[peer + 1] = output_begins_[peer] + Bytes(peer, rank_);
  }
}

Status HostAlltoall::RunDirect() {
  LocalMoves moves(local_size());
  AddBlocksOfHost(moves);
  KR_RETURN_IF_ERROR(RunLocal(moves));
  SendReceivePlan plan = PlanDirectAlltoall(rank_, size_, args_);
  Drop(plan, [&](const auto& stream) {
    return placement_.host(stream.peer) == host_;
  });
  return plan.empty() ? OkStatus() : transport_.Run(plan);
}

Status HostAlltoall::RunByLanes(const std::vector<AlltoallStep>& steps) {
  // One buffer to collect parcels, and one for what each step receives.
  while (scratch_.size() < steps.size() + 1) scratch_.emplace_back();
  LocalMoves moves(local_size());
  AddBlocksOfHost(moves);
  KR_RETURN_IF_ERROR(AddBlocksForLanes(moves));
  KR_RETURN_IF_ERROR(RunLocal(moves));
  if (has_lane()) {
    for (size_t i = 0; i < steps.size(); ++i) {
      KR_RETURN_IF_ERROR(RunStep(steps[i], scratch_[i + 1]));
    }
  }
  return Deliver();
}

const char* HostAlltoall::InputFor(int to) const {
  return Advance(static_cast<const char*>(args_.input), input_begins_[to]);
}

char* HostAlltoall::OutputFrom(int from) const {
  return Advance(static_cast<char*>(args_.output), output_begins_[from]);
}

template <typename Function>
void HostAlltoall::ForEachBlock(const Parcel& parcel, int lane,
                                Function f) const {
  const std::vector<int>& targets = placement_.ranks(parcel.to);
  for (size_t i = lane; i < targets.size(); i += lanes()) {
    for (int from : placement_.ranks(parcel.from)) f(from, targets[i]);
  }
}

size_t HostAlltoall::BytesOf(const Parcel& parcel) const {
  size_t total = 0;
  ForEachBlock(parcel, local_rank_,
               [&](int from, int to) { total += Bytes(from, to); });
  return total;
}

const char* HostAlltoall::InInput(const Parcel& parcel) const {
  if (parcel.from != host_ || local_size() > 1) return nullptr;
  const char* first = nullptr;
  const char* end = nullptr;
  bool in_one = true;
  ForEachBlock(parcel, local_rank_, [&](int from, int to) {
    const char* const block = InputFor(to);
    if (first == nullptr) first = end = block;
    in_one = in_one && block == end;
    end = Advance(end, Bytes(from, to));
  });
  return in_one ? first : nullptr;
}

char* HostAlltoall::InOutput(const Parcel& parcel) const {
  if (parcel.to != host_) return nullptr;
  char* first = nullptr;
  char* end = nullptr;
  bool in_one = true;
  ForEachBlock(parcel, local_rank_, [&](int from, int to) {
    char* const block = OutputFrom(from);
    if (first == nullptr) first = end = block;
    in_one = in_one && to == rank_ && block == end;
    end = Advance(end, Bytes(from, to));
  });
  return in_one ? first : nullptr;
}

void HostAlltoall::AddLocal(int from, int to, size_t bytes, const char* input,
                            char* output, LocalMoves& moves) const {
  if (bytes == 0) return;
  const auto count = static_cast<int64_t>(bytes);
  moves.bytes[from][to] += count;
  if (from == local_rank_) moves.gives[to].push_back({input, nullptr, count});
  if (to == local_rank_) moves.takes[from].push_back({nullptr, output, count});
}

void HostAlltoall::AddBlocksOfHost(LocalMoves& moves) const {
  for (int from = 0; from < local_size(); ++from) {
    for (int to = 0; to < local_size(); ++to) {
      AddLocal(from, to, Bytes(locals_[from], locals_[to]),
               InputFor(locals_[to]), OutputFrom(locals_[from]), moves);
    }
  }
}

Status HostAlltoall::AddBlocksForLanes(LocalMoves& moves) {
  // Only the parcels of this rank's own lane need memory here.
  std::vector<Parcel> collected;
  size_t bytes = 0;
  for (int to = 0; to < placement_.num_hosts() && has_lane(); ++to) {
    const Parcel parcel{host_, to};
    if (to == host_) continue;
    if (const char* const at = InInput(parcel); at != nullptr) {
      held_[{host_, to}] = at;
    } else {
      collected.push_back(parcel);
      bytes += BytesOf(parcel);
    }
  }
  KR_ASSIGN_OR_RETURN(void* memory, scratch_[0].Reserve(bytes));
  char* next = static_cast<char*>(memory);
  for (const Parcel& parcel : collected) {
    held_[{parcel.from, parcel.to}] = next;
    next += BytesOf(parcel);
  }
  for (int to = 0; to < placement_.num_hosts(); ++to) {
    const Parcel parcel{host_, to};
    if (to == host_) continue;
    for (int lane = 0; lane < lanes(); ++lane) {
      const bool is_own = lane == local_rank_;
      if (is_own && InInput(parcel) != nullptr) continue;
      char* at = is_own ? const_cast<char*>(held_[{host_, to}]) : nullptr;
      ForEachBlock(parcel, lane, [&](int from, int target) {
        AddLocal(placement_.local_rank(from), lane, Bytes(from, target),
                 InputFor(target), at, moves);
        at = Advance(at, Bytes(from, target));
      });
    }
  }
  return OkStatus();
}

Status HostAlltoall::RunLocal(const LocalMoves& moves) {
  const int size = local_size();
  const std::vector<TensorSpan>& kept = moves.gives[local_rank_];
  for (size_t i = 0; i < kept.size(); ++i) {
    CopyIfApart(moves.takes[local_rank_][i].output, kept[i].input,
                kept[i].count);
  }
  std::vector<int64_t> stream_bytes(size);
  std::vector<int64_t> begins(size);  // of what is for this rank, by sender
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (to == from) continue;
      if (to == local_rank_) begins[from] = stream_bytes[from];
      stream_bytes[from] += moves.bytes[from][to];
    }
  }
  std::vector<TensorSpan> given;
  for (int to = 0; to < size; ++to) {
    if (to == local_rank_) continue;
    given.insert(given.end(), moves.gives[to].begin(), moves.gives[to].end());
  }
  Spans gives;
  gives.Assign(given, /*element_size=*/1);
  std::vector<Spans> takes(size);
  for (int from = 0; from < size; ++from) {
    takes[from].Assign(moves.takes[from], /*element_size=*/1);
  }
  const uint64_t first = next_chunk_;
  KR_RETURN_IF_ERROR(streams_.Move(
      stream_bytes, next_chunk_,
      [&](char* to, const Range& range) {
        gives.ForEach(range, [&](const SpanPiece& piece) {
          std::memcpy(to + piece.at, piece.input, piece.bytes);
        });
      },
      [&](int from, const char* data, const Range& range) {
        const int64_t begin = begins[from];
        const Range wanted = Intersection(
            range, {begin, begin + moves.bytes[from][local_rank_]});
        if (wanted.count() == 0) return;
        takes[from].ForEach({wanted.begin - begin, wanted.end - begin},
                            [&](const SpanPiece& piece) {
                              std::memcpy(
                                  piece.output,
                                  data + wanted.begin - range.begin + piece.at,
                                  piece.bytes);
                            });
      }));
  // When the next collective begins, no rank may still read the slots.
  return next_chunk_ == first
             ? OkStatus()
             : streams_.barrier.AwaitAll(Phase::kReduced, next_chunk_ - 1);
}

Status HostAlltoall::RunStep(const AlltoallStep& step, ScratchBuffer& scratch) {
  SendReceivePlan plan;
  plan.tag = args_.tag;
  for (const AlltoallStep::Move& move : step.sends) {
    Outgoing outgoing;
    outgoing.peer = placement_.ranks(move.peer)[local_rank_];
    for (const Parcel& parcel : move.parcels) {
      const size_t bytes = BytesOf(parcel);
      if (bytes == 0) continue;
      outgoing.segments.push_back({held_.at({parcel.from, parcel.to}), bytes});
    }
    plan.outgoing.push_back(std::move(outgoing));
  }
  size_t bytes = 0;
  for (const AlltoallStep::Move& move : step.receives) {
    for (const Parcel& parcel : move.parcels) bytes += BytesOf(parcel);
  }
  KR_ASSIGN_OR_RETURN(void* memory, scratch.Reserve(bytes));
  char* next = static_cast<char*>(memory);
  for (const AlltoallStep::Move& move : step.receives) {
    Incoming incoming;
    incoming.peer = placement_.ranks(move.peer)[local_rank_];
    for (const Parcel& parcel : move.parcels) {
      const size_t size = BytesOf(parcel);
      if (size == 0) continue;
      char* const output = InOutput(parcel);
      char* const to = output != nullptr ? output : next;
      if (output == nullptr) next += size;
      held_[{parcel.from, parcel.to}] = to;
      incoming.segments.push_back({to, size});
    }
    plan.incoming.push_back(std::move(incoming));
  }
  ReleaseAll(plan);
  return plan.empty() ? OkStatus() : transport_.Run(plan);
}

Status HostAlltoall::Deliver() {
  LocalMoves moves(local_size());
  for (int from = 0; from < placement_.num_hosts(); ++from) {
    if (from == host_) continue;
    const Parcel parcel{from, host_};
    for (int lane = 0; lane < lanes(); ++lane) {
      const bool is_own = lane == local_rank_;
      const auto found = held_.find({from, host_});
      if (is_own && (found == held_.end() || InOutput(parcel) != nullptr)) {
        continue;
      }
      const char* at = is_own ? found->second : nullptr;
      ForEachBlock(parcel, lane, [&](int source, int to) {
        AddLocal(lane, placement_.local_rank(to), Bytes(source, to), at,
                 OutputFrom(source), moves);
        at = Advance(at, Bytes(source, to));
      });
    }
  }
  return RunLocal(moves);
}

}  // namespace keras_ring
