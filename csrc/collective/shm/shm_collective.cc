#include "csrc/collective/shm/shm_collective.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "csrc/base/round.h"
#include "csrc/collective/arguments.h"
#include "csrc/collective/fold_method.h"
#include "csrc/collective/shm/host_page.h"

namespace keras_ring {
namespace {

constexpr size_t kAlignment = 64;  // of parts: a cache line

// How much less, and how much more, than by default a part may have.
constexpr int64_t kMaxTimes = 16;
int64_t Number(size_t bytes) { return static_cast<int64_t>(bytes); }
int64_t RoundDown(int64_t bytes) {
  return bytes / Number(kAlignment) * Number(kAlignment);
}
int64_t MinPart(int64_t bytes) {
  return std::max(RoundDown(bytes / kMaxTimes), Number(kAlignment));
}

void Copy(void* to, const void* from, size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

size_t SlotBytes(int size, const ShmCollectiveOptions& options) {
  return (size + 1) * options.part_bytes;
}

}  // namespace

size_t ShmCollective::DataBytes(int size, const ShmCollectiveOptions& options) {
  return sizeof(HostPage) + 2 * SlotBytes(size, options);
}

ShmCollective::ShmCollective(const HostGroup& group,
                             const ShmCollectiveOptions& options,
                             const Meter& meter)
    : group_(group),
      options_(options),
      tuned_{options.part_bytes, options.one_shot_bytes,
             options.direct_part_bytes},
      size_(group.size()),
      local_rank_(group.local_rank()),
      slot_bytes_(SlotBytes(group.size(), options)),
      meter_(meter),
      barrier_(HostPage::Progress(group), group.global_ranks(),
               group.local_rank(), options.barrier, meter),
      streams_{barrier_,
               meter_,
               size_,
               local_rank_,
               static_cast<int64_t>(size_ * options.part_bytes),
               /*depth=*/2,
               [this](int local_rank, uint64_t chunk) {
                 return Slot(local_rank, chunk);
               }},
      direct_(group, HostPage::Tables(group)),
      adasum_(options.adasum_round),
      sources_(group.size()) {
  KR_CHECK(group.data_bytes() >= DataBytes(size_, options));
  KR_CHECK(options.part_bytes % kAlignment == 0);
  KR_CHECK(options.direct_part_bytes % kAlignment == 0);
}

char* ShmCollective::Slot(int local_rank, uint64_t chunk) const {
  return group_.data(local_rank) + sizeof(HostPage) + (chunk % 2) * slot_bytes_;
}

ShmCollective::~ShmCollective() { barrier_.Leave(); }

template <typename Function>
Status ShmCollective::Guard(uint64_t tag, Function collective) {
  barrier_.SetTag(tag);
  Status status = broken_.Run(collective);
  // The other ranks need not wait for steps that will not come.
  if (!status.ok()) barrier_.Leave();
  return status;
}

std::string ShmCollective::Explain() const {
  return std::to_string(size_) +
         " ranks of one host, through shared memory\n"
         "an allreduce is done in one shot up to " +
         std::to_string(options_.one_shot_bytes / (size_ > 1 ? size_ - 1 : 1)) +
         " bytes, else each rank reduces a part\n";
}

// Slots are laid out once: parts may become smaller.
std::vector<TunableRange> ShmCollective::Tunables() const {
  if (size_ == 1) return {};
  const int64_t part = options_.part_bytes;
  const int64_t direct = options_.direct_part_bytes;
  return {{Tunable::kPartBytes, Number(tuned_.part_bytes), MinPart(part), part},
          {Tunable::kOneShotBytes, Number(tuned_.one_shot_bytes), 0,
           size_ * part * (size_ - 1)},
          {Tunable::kDirectPartBytes, Number(tuned_.direct_part_bytes),
           MinPart(direct), direct * kMaxTimes}};
}

void ShmCollective::Set(Tunable tunable, int64_t value) {
  if (tunable == Tunable::kPartBytes) tuned_.part_bytes = RoundDown(value);
  if (tunable == Tunable::kOneShotBytes) tuned_.one_shot_bytes = value;
  if (tunable == Tunable::kDirectPartBytes) {
    tuned_.direct_part_bytes = RoundDown(value);
  }
}

void ShmCollective::PeerGone(int rank) {
  const int local_rank = group_.LocalRankOf(rank);
  if (local_rank >= 0) barrier_.SetGone(local_rank);
}

void ShmCollective::Abort(const Status& cause) {
  if (broken_.Set(cause)) barrier_.Abort(cause);
}

// A sum over the ranks, cut into chunks and parts. The row is that of spans_.
struct ShmCollective::Plan : FoldMethod {
  using FoldMethod::FoldMethod;

  bool streams = false;  // whether outputs are written past the caches
  int64_t num_chunks = 0;
  int64_t part_count = 0;  // elements of a part, at most
  // For a reducescatter: where the block of each rank begins, and the end.
  const std::vector<int64_t>* blocks = nullptr;

  // As few chunks as there can be, of equal size, whole cache lines.
  void Cut(int64_t count, int size, int64_t element_size, size_t part_bytes) {
    const int64_t line = kAlignment / element_size;
    const int64_t most = part_bytes / element_size;
    const int64_t chunks = DivideUp(count, size * most);
    part_count = RoundUp(DivideUp(count, size * chunks), line);
    num_chunks = DivideUp(count, size * part_count);
  }

  // The elements of `chunk` that `owner` of `size` ranks reduces.
  Range Part(int64_t chunk, int owner, int size, int64_t count) const {
    int64_t begin = (chunk * size + owner) * part_count;
    if (blocks != nullptr) {
      begin = (*blocks)[owner] + chunk * part_count;
      count = (*blocks)[owner + 1];
    }
    return {std::min(begin, count), std::min(begin + part_count, count)};
  }
};

Status ShmCollective::Allreduce(const AllreduceArgs& args) {
  if (args.op == ReduceOp::kAdasum) {
    return adasum_.Allreduce(args, local_rank_, size_, *this);
  }
  return Guard(args.tag, [&] {
    KR_RETURN_IF_ERROR(CheckReduction(args).WithContext("allreduce"));
    Plan plan(args);
    spans_.Assign(args.tensors, plan.element_size, plan.wire_size);
    const size_t bytes = spans_.count() * plan.element_size;
    plan.streams = bytes >= options_.stream_bytes;
    const bool direct = size_ > 1 && direct_.possible() &&
                        plan.codec == nullptr && bytes >= options_.direct_bytes;
    return (direct ? ReduceDirectly(args.tensors, plan)
                   : ReduceThroughSlots(plan))
        .WithContext("allreduce");
  });
}

// A single chunk announces what follows, and that the inputs may be read.
Status ShmCollective::ReduceDirectly(const std::vector<TensorSpan>& tensors,
                                     const Plan& plan) {
  const size_t element_size = spans_.element_size();
  const uint64_t chunk = next_chunk_++;
  KR_RETURN_IF_ERROR(streams_.AwaitSlot(chunk));
  direct_.Publish(tensors);
  barrier_.Publish(Phase::kPacked, chunk);
  KR_RETURN_IF_ERROR(barrier_.AwaitAll(Phase::kPacked, chunk));
  KR_RETURN_IF_ERROR(direct_.Resolve(tensors, element_size));
  barrier_.Publish(Phase::kReduced, chunk);
  if (!direct_.others().empty()) {
    spans_.Assign(direct_.others(), element_size);
    KR_RETURN_IF_ERROR(ReduceThroughSlots(plan));
  }
  spans_.Assign(direct_.direct(), element_size);
  meter_.TraceAlgorithm(barrier_.tag(), "shm direct");
  return Direct(plan);
}

// For the tensors in spans_.
Status ShmCollective::ReduceThroughSlots(Plan plan) {
  const int64_t count = spans_.count();
  const int64_t bytes = count * spans_.wire_size();
  if (count == 0) return OkStatus();
  const bool one_shot =
      bytes <= static_cast<int64_t>(size_ * options_.part_bytes) &&
      bytes * (size_ - 1) <= Number(tuned_.one_shot_bytes);
  const bool alone = size_ == 1 && plan.codec == nullptr;
  meter_.TraceAlgorithm(barrier_.tag(),
                        one_shot ? "shm one_shot" : "shm two_shots");
  if (alone || one_shot) return OneShot(plan);
  plan.Cut(count, size_, spans_.wire_size(), tuned_.part_bytes);
  return TwoShots(plan);
}

// reduce(i), unpack(i - 1). What must have happened before:
//
//   reduce(i) reads the inputs of the others: they have told of them. If this
//       rank's output is its input, it overwrites what nobody else reads: the
//       part that it reduces itself.
//   unpack(i) reads the outputs of the others, and may overwrite the input from
//       which they were made: kReduced of i.
//
// At the end a rank waits until the others have read its outputs, for the
// framework will do with them as it likes. A rank that fails does not wait; so
// the others, before they trust what they have read, look whether one has left.
Status ShmCollective::Direct(Plan plan) {
  if (spans_.count() == 0) return OkStatus();
  plan.Cut(spans_.count(), size_, spans_.element_size(),
           tuned_.direct_part_bytes);
  const uint64_t first = next_chunk_;
  const int64_t chunks = plan.num_chunks;
  next_chunk_ += chunks;
  for (int64_t i = 0; i < chunks + 1; ++i) {
    if (i < chunks) ReduceDirect(plan, i, first + i);
    if (i >= 1) {
      KR_RETURN_IF_ERROR(UnpackDirect(plan, i - 1, first + i - 1));
    }
  }
  const uint64_t last = next_chunk_ - 1;
  KR_RETURN_IF_ERROR(barrier_.CheckNobodyLeft());
  barrier_.Publish(Phase::kUnpacked, last);
  return barrier_.AwaitAll(Phase::kUnpacked, last);
}

void ShmCollective::ReduceDirect(const Plan& plan, int64_t chunk,
                                 uint64_t number) {
  {
    TimedPhase time(meter_, TracePhase::kReduce, barrier_.tag());
    spans_.ForEach(
        plan.Part(chunk, local_rank_, size_, spans_.count()),
        [&](const SpanPiece& piece) {
          for (int local_rank = 0; local_rank < size_; ++local_rank) {
            if (local_rank == local_rank_) {
              sources_[local_rank] = piece.input;
              continue;
            }
            sources_[local_rank] =
                direct_.input(local_rank, piece.tensor) + piece.offset;
          }
          Fold(plan, piece, nullptr);
        });
  }
  barrier_.Publish(Phase::kReduced, number);
}

Status ShmCollective::UnpackDirect(const Plan& plan, int64_t chunk,
                                   uint64_t number) {
  for (int i = 1; i < size_; ++i) {
    const int owner = (local_rank_ + i) % size_;
    KR_RETURN_IF_ERROR(barrier_.Await(owner, Phase::kReduced, number));
    TimedPhase time(meter_, TracePhase::kUnpack, barrier_.tag());
    spans_.ForEach(plan.Part(chunk, owner, size_, spans_.count()),
                   [&](const SpanPiece& piece) {
                     CopyResult(
                         plan, piece,
                         direct_.output(owner, piece.tensor) + piece.offset);
                   });
  }
  return OkStatus();
}

void ShmCollective::Fold(const Plan& plan, const SpanPiece& piece, char* copy) {
  bool streams = plan.streams;
  for (int i = 0; i < size_; ++i) {
    if (sources_[i] == piece.output) streams = false;
  }
  plan.Fold(piece, sources_.data(), size_, copy, streams);
}

void ShmCollective::CopyResult(const Plan& plan, const SpanPiece& piece,
                               const char* result) const {
  if (plan.codec == nullptr && plan.streams) {
    StreamCopy(piece.output, result, piece.bytes);
  } else {
    plan.Decode(piece, result);
  }
}

void ShmCollective::PackTo(char* to, const Plan& plan,
                           const Range& range) const {
  spans_.ForEach(range, [&](const SpanPiece& piece) {
    plan.Encode(to + piece.at, piece);
  });
}

// Everybody packs all and reduces all.
Status ShmCollective::OneShot(const Plan& plan) {
  const Range all{0, spans_.count()};
  const uint64_t chunk = next_chunk_++;
  const bool packs = size_ > 1 || plan.codec != nullptr;
  if (packs) {
    KR_RETURN_IF_ERROR(streams_.AwaitSlot(chunk));
    {
      TimedPhase time(meter_, TracePhase::kPack, barrier_.tag());
      PackTo(Slot(local_rank_, chunk), plan, all);
    }
    barrier_.Publish(Phase::kPacked, chunk);
    KR_RETURN_IF_ERROR(barrier_.AwaitAll(Phase::kPacked, chunk));
  }
  {
    TimedPhase time(meter_, TracePhase::kReduce, barrier_.tag());
    spans_.ForEach(all, [&](const SpanPiece& piece) {
      for (int local_rank = 0; local_rank < size_; ++local_rank) {
        sources_[local_rank] =
            local_rank == local_rank_ && plan.codec == nullptr
                ? piece.input
                : Slot(local_rank, chunk) + piece.at;
      }
      Fold(plan, piece, nullptr);
    });
  }
  barrier_.Publish(Phase::kReduced, chunk);
  return OkStatus();
}

// A rank's order of work on the chunks i of a collective:
//
//   unpack(i - 2), pack(i), reduce(i - 1)
//
// so that what a step needs of the others they have done, as a rule, while this
// rank did its last one. What must have happened before:
//
//   pack(i) overwrites what the others reduced of chunk i - 2: they have
//       published kReduced of it. (So they have when it is unpacked; else this
//       is waited for.)
//   reduce(i) reads what the others packed: kPacked of i.
//   reduce(i) overwrites the result that the others unpacked of chunk i - 2:
//       they did so before they packed i, which is known by then.
//   unpack(i) reads the results of the others: kReduced of i.
//
// The numbers run on from one collective to the next, and each collective ends
// with its last unpack, so all this holds between collectives as well.
Status ShmCollective::TwoShots(const Plan& plan) {
  const uint64_t first = next_chunk_;
  const int64_t chunks = plan.num_chunks;
  next_chunk_ += chunks;
  for (int64_t i = 0; i < chunks + 2; ++i) {
    if (i >= 2) KR_RETURN_IF_ERROR(Unpack(plan, i - 2, first + i - 2));
    if (i < chunks) KR_RETURN_IF_ERROR(Pack(plan, i, first + i));
    if (i >= 1 && i - 1 < chunks) {
      KR_RETURN_IF_ERROR(Reduce(plan, i - 1, first + i - 1));
    }
  }
  return OkStatus();
}

Status ShmCollective::Pack(const Plan& plan, int64_t chunk, uint64_t number) {
  KR_RETURN_IF_ERROR(streams_.AwaitSlot(number));
  {
    TimedPhase time(meter_, TracePhase::kPack, barrier_.tag());
    for (int i = 1; i < size_; ++i) {
      const int owner = (local_rank_ + i) % size_;
      PackTo(PartOf(local_rank_, number, owner), plan,
             plan.Part(chunk, owner, size_, spans_.count()));
    }
  }
  barrier_.Publish(Phase::kPacked, number);
  return OkStatus();
}

Status ShmCollective::Reduce(const Plan& plan, int64_t chunk, uint64_t number) {
  KR_RETURN_IF_ERROR(barrier_.AwaitAll(Phase::kPacked, number));
  {
    TimedPhase time(meter_, TracePhase::kReduce, barrier_.tag());
    const Range part = plan.Part(chunk, local_rank_, size_, spans_.count());
    char* own = PartOf(local_rank_, number, local_rank_);
    // Nobody else reads it, so there is time until now.
    if (plan.codec != nullptr) PackTo(own, plan, part);
    char* result = ResultOf(local_rank_, number);
    const bool scatters = plan.blocks != nullptr;
    spans_.ForEach(part, [&](const SpanPiece& piece) {
      for (int local_rank = 0; local_rank < size_; ++local_rank) {
        sources_[local_rank] =
            local_rank == local_rank_ && plan.codec == nullptr
                ? piece.input
                : PartOf(local_rank, number, local_rank_) + piece.at;
      }
      Fold(plan, piece, scatters ? nullptr : result + piece.at);
    });
  }
  barrier_.Publish(Phase::kReduced, number);
  return OkStatus();
}

Status ShmCollective::Unpack(const Plan& plan, int64_t chunk, uint64_t number) {
  if (plan.blocks != nullptr) return OkStatus();
  for (int i = 1; i < size_; ++i) {
    const int owner = (local_rank_ + i) % size_;
    KR_RETURN_IF_ERROR(barrier_.Await(owner, Phase::kReduced, number));
    TimedPhase time(meter_, TracePhase::kUnpack, barrier_.tag());
    const char* result = ResultOf(owner, number);
    spans_.ForEach(plan.Part(chunk, owner, size_, spans_.count()),
                   [&](const SpanPiece& piece) {
                     CopyResult(plan, piece, result + piece.at);
                   });
  }
  return OkStatus();
}

Status ShmCollective::Reducescatter(const ReducescatterArgs& args) {
  return Guard(args.tag, [&] {
    KR_RETURN_IF_ERROR(
        CheckReducescatter(args, size_).WithContext("reducescatter"));
    Plan plan(args);
    std::vector<TensorSpan> blocks;
    std::vector<int64_t> begins = {0};
    int64_t longest = 0;
    for (int local_rank = 0; local_rank < size_; ++local_rank) {
      const int64_t count = args.count_per_rank[local_rank];
      blocks.push_back({static_cast<const char*>(args.input) +
                            begins.back() * plan.element_size,
                        local_rank == local_rank_ ? args.output : nullptr,
                        count});
      begins.push_back(begins.back() + count);
      longest = std::max(longest, count);
    }
    spans_.Assign(blocks, plan.element_size, plan.wire_size);
    plan.part_count = options_.part_bytes / plan.wire_size;
    plan.num_chunks = DivideUp(longest, plan.part_count);
    plan.blocks = &begins;
    return TwoShots(plan).WithContext("reducescatter");
  });
}

template <typename Give, typename Take>
Status ShmCollective::Move(const std::vector<int64_t>& stream_bytes,
                           const Give& give, const Take& take) {
  return streams_.Move(stream_bytes, next_chunk_, give, take);
}

Status ShmCollective::Allgather(const AllgatherArgs& args) {
  return Guard(args.tag, [&] {
    KR_RETURN_IF_ERROR(
        CheckSizes(args.bytes_per_rank.size(), size_).WithContext("allgather"));
    std::vector<int64_t> bytes(args.bytes_per_rank.begin(),
                               args.bytes_per_rank.end());
    std::vector<int64_t> begins(size_);
    std::partial_sum(bytes.begin(), bytes.end() - 1, begins.begin() + 1);
    const char* input = static_cast<const char*>(args.input);
    char* output = static_cast<char*>(args.output);
    Copy(output + begins[local_rank_], input, bytes[local_rank_]);
    return Move(
               bytes,
               [&](char* to, const Range& own) {
                 Copy(to, input + own.begin, own.count());
               },
               [&](int local_rank, const char* data, const Range& range) {
                 Copy(output + begins[local_rank] + range.begin, data,
                      range.count());
               })
        .WithContext("allgather");
  });
}

Status ShmCollective::Broadcast(const BroadcastArgs& args) {
  return Guard(args.tag, [&] {
    KR_RETURN_IF_ERROR(CheckRoot(args, size_).WithContext("broadcast"));
    spans_.Assign(args.tensors, 1);
    std::vector<int64_t> bytes(size_);
    bytes[args.root] = spans_.count();
    if (local_rank_ == args.root) {
      for (const TensorSpan& tensor : args.tensors) {
        Copy(tensor.output, tensor.input, tensor.count);
      }
    }
    return Move(
               bytes,
               [&](char* to, const Range& own) {
                 spans_.ForEach(own, [&](const SpanPiece& piece) {
                   Copy(to + piece.at, piece.input, piece.bytes);
                 });
               },
               [&](int, const char* data, const Range& range) {
                 spans_.ForEach(range, [&](const SpanPiece& piece) {
                   Copy(piece.output, data + piece.at, piece.bytes);
                 });
               })
        .WithContext("broadcast");
  });
}

// A rank's stream is its blocks for the others, in their order.
Status ShmCollective::Alltoall(const AlltoallArgs& args) {
  return Guard(args.tag, [&] {
    KR_RETURN_IF_ERROR(CheckAlltoall(args, size_).WithContext("alltoall"));
    std::vector<int64_t> bytes(size_);  // of each stream
    std::vector<Range> blocks;          // for this rank, in each stream
    std::vector<int64_t> output_begins(size_ + 1);
    for (int from = 0; from < size_; ++from) {
      for (int to = 0; to < size_; ++to) {
        const int64_t begin = bytes[from];
        bytes[from] += static_cast<int64_t>(args.bytes(from, to));
        if (to == local_rank_) blocks.push_back({begin, bytes[from]});
      }
      output_begins[from + 1] = output_begins[from] + blocks[from].count();
    }
    const char* input = static_cast<const char*>(args.input);
    char* output = static_cast<char*>(args.output);
    Copy(output + output_begins[local_rank_], input + blocks[local_rank_].begin,
         blocks[local_rank_].count());
    return Move(
               bytes,
               [&](char* to, const Range& own) {
                 Copy(to, input + own.begin, own.count());
               },
               [&](int from, const char* data, const Range& range) {
                 const Range& block = blocks[from];
                 const Range wanted = Intersection(range, block);
                 if (wanted.count() == 0) return;
                 Copy(output + output_begins[from] + wanted.begin - block.begin,
                      data + wanted.begin - range.begin, wanted.count());
               })
        .WithContext("alltoall");
  });
}

}  // namespace keras_ring
