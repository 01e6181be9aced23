#include "csrc/collective/hierarchy/host_stage.h"

#include <algorithm>

#include "csrc/base/logging.h"

namespace keras_ring {
namespace {

constexpr size_t kAlignment = 64;  // of parts: a cache line

size_t SlotBytes(int size, const HostStageOptions& options) {
  return (size + 1) * options.part_bytes;
}

}  // namespace

size_t HostSlots::DataBytes(int size, const HostStageOptions& options) {
  return sizeof(ProgressPage) + options.depth * SlotBytes(size, options);
}

HostSlots::HostSlots(const HostGroup& group, const HostStageOptions& options)
    : group_(group), options_(options) {
  KR_CHECK(group.data_bytes() >= DataBytes(group.size(), options));
  KR_CHECK(options.part_bytes % kAlignment == 0);
  KR_CHECK(options.depth <= static_cast<int64_t>(ProgressPage::kNumTags));
}

std::vector<ProgressPage*> HostSlots::Pages(const HostGroup& group) {
  std::vector<ProgressPage*> pages;
  for (int i = 0; i < group.size(); ++i) {
    pages.push_back(reinterpret_cast<ProgressPage*>(group.data(i)));
  }
  return pages;
}

char* HostSlots::Values(int local_rank, uint64_t chunk, int lane) const {
  return group_.data(local_rank) + sizeof(ProgressPage) +
         (chunk % options_.depth) * SlotBytes(group_.size(), options_) +
         lane * options_.part_bytes;
}

char* HostSlots::Results(int local_rank, uint64_t chunk) const {
  return Values(local_rank, chunk, group_.size());
}

HostStage::HostStage(const HostGroup& group, const HostSlots& slots,
                     ChunkBarrier& barrier, const Spans& row,
                     HostMethod& method, const StageParts& parts,
                     uint64_t first_chunk, const Meter& meter)
    : group_(group),
      slots_(slots),
      barrier_(barrier),
      row_(row),
      method_(method),
      parts_(parts),
      size_(group.size()),
      local_rank_(group.local_rank()),
      lanes_(parts.lanes()),
      num_chunks_(parts.num_chunks()),
      first_chunk_(first_chunk),
      meter_(meter),
      sources_(group.size()) {
  KR_CHECK(parts.max_count() * row.wire_size() <= slots.options().part_bytes);
}

void HostStage::Look() { seen_ = barrier_.TotalDone(); }

bool HostStage::Advance() {
  bool any = false;
  bool changed = true;
  while (changed) {
    changed = false;
    for (; unpacked_ < packed_ && CanUnpack(unpacked_); changed = true) {
      Unpack(unpacked_++);
    }
    for (; CanPack(); changed = true) Pack(packed_++);
    any = any || changed;
  }
  return any;
}

bool HostStage::CanPack() const {
  const int64_t used = owns_lane() ? std::min(unpacked_, done_) : unpacked_;
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
        if (!method_.Has(piece, local_rank_)) return;
        method_.method().Encode(to + piece.at, piece);
      });
    }
  }
  barrier_.Publish(Phase::kPacked, Number(chunk));
  // It owes the others nothing more.
  if (!owns_lane()) barrier_.Publish(Phase::kReduced, Number(chunk));
}

bool HostStage::IsReady(int64_t step) const {
  return packed_ > step && barrier_.AllHaveDone(Phase::kPacked, Number(step)) &&
         barrier_.CheckTags(Number(step)).ok();
}

void HostStage::Reduce(int64_t step, char* sums) {
  const TimedPhase time(meter_, TracePhase::kReduce, barrier_.tag());
  const bool encoded = method_.method().codec != nullptr;
  row_.ForEach(parts_.Part(step, local_rank_), [&](const SpanPiece& piece) {
    for (int i = 0; i < size_; ++i) {
      sources_[i] =
          i == local_rank_ && !encoded
              ? piece.input
              : slots_.Values(i, Number(step), local_rank_) + piece.at;
    }
    method_.Reduce(piece, sources_.data(), size_,
                   sums + piece.at / row_.wire_size() * method_.size());
  });
}

char* HostStage::Results(int64_t step) {
  return slots_.Results(local_rank_, Number(step));
}

void HostStage::Done(int64_t step) {
  done_ = step + 1;
  barrier_.Publish(Phase::kReduced, Number(step));
}

bool HostStage::CanUnpack(int64_t chunk) const {
  for (int lane = 0; lane < lanes_; ++lane) {
    if (lane != local_rank_ &&
        !barrier_.HasDone(lane, Phase::kReduced, Number(chunk))) {
      return false;
    }
  }
  return true;
}

void HostStage::Unpack(int64_t chunk) {
  const TimedPhase time(meter_, TracePhase::kUnpack, barrier_.tag());
  for (int i = 1; i <= lanes_; ++i) {
    const int lane = (local_rank_ + i) % lanes_;
    if (lane == local_rank_) continue;
    const char* const results = slots_.Results(lane, Number(chunk));
    row_.ForEach(parts_.Part(chunk, lane), [&](const SpanPiece& piece) {
      method_.method().Decode(piece, results + piece.at);
    });
  }
}

bool HostStage::Happened() { return barrier_.TotalDone() != seen_; }

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

// Whoever has left will not do what is left of the last chunk; perhaps it has
// left because it runs another collective.
Status HostStage::Check() {
  if (num_chunks_ == 0) return OkStatus();
  KR_RETURN_IF_ERROR(
      barrier_.CheckTags(Number(std::min(unpacked_, num_chunks_ - 1))));
  const uint64_t last = Number(num_chunks_ - 1);
  KR_RETURN_IF_ERROR(barrier_.CheckNobodyLost(Phase::kPacked, last));
  return barrier_.CheckNobodyLost(Phase::kReduced, last);
}

std::string HostStage::Awaited() const {
  if (finished()) return "";
  const uint64_t next = Number(unpacked_);
  std::string ranks;
  for (int i = 0; i < size_; ++i) {
    if (i == local_rank_ || (barrier_.HasDone(i, Phase::kPacked, next) &&
                             barrier_.HasDone(i, Phase::kReduced, next))) {
      continue;
    }
    ranks += ranks.empty() ? "for rank " : ", rank ";
    ranks += std::to_string(group_.global_rank(i));
  }
  return ranks;
}

}  // namespace keras_ring
