#include "csrc/collective/hierarchy/host_stage.h"

#include <algorithm>

#include "csrc/base/logging.h"
#include "csrc/base/spin.h"
#include "csrc/collective/shm/host_page.h"

namespace keras_ring {
namespace {

constexpr size_t kAlignment = 64;  // of parts: a cache line

size_t SlotBytes(int size, const HostStageOptions& options) {
  return (size + 1) * options.part_bytes;
}

}  // namespace

size_t HostSlots::DataBytes(int size, const HostStageOptions& options) {
  return sizeof(HostPage) + options.depth * SlotBytes(size, options);
}

HostSlots::HostSlots(const HostGroup& group, const HostStageOptions& options)
    : group_(group), options_(options) {
  KR_CHECK(group.data_bytes() >= DataBytes(group.size(), options));
  KR_CHECK(options.part_bytes % kAlignment == 0);
  KR_CHECK(options.depth <= ProgressPage::kMaxDepth);
}

char* HostSlots::Values(int local_rank, uint64_t chunk, int lane) const {
  return group_.data(local_rank) + sizeof(HostPage) +
         (chunk % options_.depth) * SlotBytes(group_.size(), options_) +
         lane * options_.part_bytes;
}

char* HostSlots::Results(int local_rank, uint64_t chunk) const {
  return Values(local_rank, chunk, group_.size());
}

HostStage::HostStage(const HostGroup& group, const HostSlots& slots,
                     ChunkBarrier& barrier, const Spans& row,
                     HostMethod& method, const StageParts& parts,
                     TensorPlaces* places, uint64_t first_chunk,
                     const Meter& meter, TaskThread* helper)
    : group_(group),
      slots_(slots),
      barrier_(barrier),
      row_(row),
      method_(method),
      parts_(parts),
      places_(places),
      size_(group.size()),
      local_rank_(group.local_rank()),
      lanes_(parts.lanes()),
      num_chunks_(parts.num_chunks()),
      first_chunk_(first_chunk),
      meter_(meter),
      helper_(helper),
      sources_(group.size()) {
  KR_CHECK(parts.max_count() * row.wire_size() <= slots.options().part_bytes);
}

HostStage::~HostStage() {
  // A chunk does not take long.
  while (tasks_done_.load() < tasks_) YieldCpu();
}

template <typename Task>
void HostStage::Do(const Task& task) {
  if (helper_ == nullptr) return task();
  ++tasks_;
  // Counting is the last that it does with this object, which may go then.
  helper_->Push([this, task, &barrier = barrier_] {
    task();
    ++tasks_done_;
    barrier.WakeSelf();
  });
}

void HostStage::Look() { seen_ = NumEvents(); }

uint64_t HostStage::NumEvents() const {
  return barrier_.NumEvents() + tasks_done_.load();
}

bool HostStage::Advance() {
  bool any = false;
  bool changed = true;
  while (changed) {
    changed = false;
    for (; unpacks_ < packed_ && CanUnpack(unpacks_); changed = true) {
      Do([this, chunk = unpacks_++] {
        Unpack(chunk);
        ++unpacked_;
      });
    }
    for (; CanPack(); changed = true) Pack(packed_++);
    any = any || changed;
  }
  NoteRead();
  return any;
}

bool HostStage::CanPack() const {
  const int64_t unpacked = unpacked_.load();
  const int64_t used = owns_lane() ? std::min(unpacked, done_) : unpacked;
  return packed_ < num_chunks_ && packed_ < used + slots_.options().depth;
}

void HostStage::Pack(int64_t chunk) {
  {
    const TimedPhase time(meter_, TracePhase::kPack, barrier_.tag());
    for (int lane = 0; lane < lanes_; ++lane) {
      // The own part is taken from the tensors, unless it is encoded.
      if (lane == local_rank_ && method_.method().codec == nullptr) continue;
      char* const to = slots_.Values(local_rank_, Number(chunk), lane);
      row_.ForEach(parts_.Part(chunk, lane), [&](const SpanPiece& piece) {
        if (SharesInput(piece) || !method_.Has(piece, local_rank_)) return;
        method_.method().Encode(to + piece.at, piece);
      });
    }
  }
  barrier_.Publish(Phase::kPacked, Number(chunk));
  // A rank without a lane has nothing to reduce.
  if (!owns_lane()) barrier_.Publish(Phase::kReduced, Number(chunk));
}

bool HostStage::IsReady(int64_t step) const {
  return failure_.ok() && packed_ > step &&
         barrier_.AllHaveDone(Phase::kPacked, Number(step)) &&
         barrier_.CheckTags(Number(step)).ok();
}

bool HostStage::Learn() {
  if (places_ == nullptr || has_learnt_) return failure_.ok();
  has_learnt_ = true;
  failure_ = places_->Learn(row_.element_size());
  return failure_.ok();
}

void HostStage::StartReduce(int64_t step, char* sums) {
  if (!Learn()) return;
  Do([this, step, sums] {
    Reduce(step, sums);
    reduced_ = step + 1;
  });
}

void HostStage::Reduce(int64_t step, char* sums) {
  const TimedPhase time(meter_, TracePhase::kReduce, barrier_.tag());
  row_.ForEach(parts_.Part(step, local_rank_), [&](const SpanPiece& piece) {
    for (int i = 0; i < size_; ++i) sources_[i] = ValuesOf(i, step, piece);
    method_.Reduce(piece, sources_.data(), size_,
                   sums + piece.at / row_.wire_size() * method_.size());
  });
}

bool HostStage::HasReduced(int64_t step) {
  if (reduced_.load() <= step) return false;
  // Other hosts cannot tell whether values were read from tensors that their
  // rank had given up.
  if (places_ != nullptr && failure_.ok()) {
    failure_ = barrier_.CheckNobodyLeft();
  }
  return failure_.ok();
}

const char* HostStage::ValuesOf(int local_rank, int64_t step,
                                const SpanPiece& piece) const {
  if (local_rank == local_rank_ && method_.method().codec == nullptr) {
    return piece.input;
  }
  const char* const input =
      places_ == nullptr ? nullptr : places_->input(local_rank, piece.tensor);
  if (input != nullptr) return input + piece.offset;
  return slots_.Values(local_rank, Number(step), local_rank_) + piece.at;
}

char* HostStage::ResultsOf(int64_t step, const SpanPiece& piece, size_t at) {
  const bool alone = size_ == 1 && method_.method().codec == nullptr;
  const bool shared = places_ != nullptr &&
                      places_->output(local_rank_, piece.tensor) != nullptr;
  if (piece.output != nullptr && (alone || shared)) return piece.output;
  return slots_.Results(local_rank_, Number(step)) + at;
}

void HostStage::Done(int64_t step) {
  done_ = step + 1;
  barrier_.Publish(Phase::kReduced, Number(step));
}

bool HostStage::CanUnpack(int64_t chunk) {
  bool reads = false;
  for (int lane = 0; lane < lanes_; ++lane) {
    if (lane == local_rank_) continue;
    if (!barrier_.HasDone(lane, Phase::kReduced, Number(chunk))) return false;
    reads = true;
  }
  return !reads || Learn();
}

void HostStage::Unpack(int64_t chunk) {
  const TimedPhase time(meter_, TracePhase::kUnpack, barrier_.tag());
  for (int i = 1; i <= lanes_; ++i) {
    const int lane = (local_rank_ + i) % lanes_;
    if (lane == local_rank_) continue;
    const char* const results = slots_.Results(lane, Number(chunk));
    row_.ForEach(parts_.Part(chunk, lane), [&](const SpanPiece& piece) {
      const char* const output =
          places_ == nullptr ? nullptr : places_->output(lane, piece.tensor);
      method_.method().Decode(piece, output != nullptr ? output + piece.offset
                                                       : results + piece.at);
    });
  }
}

void HostStage::NoteRead() {
  if (places_ == nullptr || has_read_ || unpacked_ < num_chunks_) return;
  if (owns_lane() && reduced_.load() < num_chunks_) return;
  failure_ = barrier_.CheckNobodyLeft();
  if (!failure_.ok()) return;
  has_read_ = true;
  barrier_.Publish(Phase::kUnpacked, last());
}

bool HostStage::Happened() { return NumEvents() != seen_; }

int HostStage::descriptor() const { return group_.data_bell(local_rank_).fd(); }

bool HostStage::Arm() {
  barrier_.BeginSleep();
  if (!Happened()) return true;
  Disarm();
  return false;
}

void HostStage::Disarm() {
  barrier_.EndSleep();
  ClearSignal(group_.data_bell(local_rank_));
}

// A rank that has left will not do its part of the last chunk; it may have left
// because it runs another collective.
Status HostStage::Check() {
  if (num_chunks_ == 0) return OkStatus();
  KR_RETURN_IF_ERROR(failure_);
  KR_RETURN_IF_ERROR(
      barrier_.CheckTags(Number(std::min(unpacks_, num_chunks_ - 1))));
  KR_RETURN_IF_ERROR(barrier_.CheckNobodyLost(Phase::kPacked, last()));
  KR_RETURN_IF_ERROR(barrier_.CheckNobodyLost(Phase::kReduced, last()));
  return places_ == nullptr
             ? OkStatus()
             : barrier_.CheckNobodyLost(Phase::kUnpacked, last());
}

std::string HostStage::Awaited() const {
  if (finished()) return "";
  const bool at_end = unpacks_ == num_chunks_;
  const uint64_t next = Number(at_end ? num_chunks_ - 1 : unpacks_);
  std::string ranks;
  for (int i = 0; i < size_; ++i) {
    if (i == local_rank_ ||
        (barrier_.HasDone(i, Phase::kPacked, next) &&
         barrier_.HasDone(i, Phase::kReduced, next) &&
         (!at_end || barrier_.HasDone(i, Phase::kUnpacked, next)))) {
      continue;
    }
    ranks += ranks.empty() ? "for rank " : ", rank ";
    ranks += std::to_string(group_.global_rank(i));
  }
  return ranks;
}

}  // namespace keras_ring
