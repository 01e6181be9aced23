#include "csrc/collective/net/exchange_run.h"

#include <algorithm>
#include <utility>

namespace keras_ring {
namespace {

using Block = ExchangeBlock;
using Kind = ExchangeBlock::Kind;

constexpr size_t kAlignment = 64;  // of steps in scratch memory

// Adds the memory of `range` to `segments`: pieces of tensors, or all of it
// where it is staged.
template <typename Segments, typename Pointer>
void AddSegments(const Spans& row, const Range& range, char* staged,
                 Pointer SpanPiece::*memory, Segments& segments) {
  if (range.count() == 0) return;
  if (staged != nullptr) {
    segments.push_back({staged, range.count() * row.wire_size()});
    return;
  }
  row.ForEach(range, [&](const SpanPiece& piece) {
    segments.push_back({piece.*memory, piece.bytes});
  });
}

}  // namespace

ExchangeRun::ExchangeRun(const ExchangeSchedule& schedule,
                         const FoldMethod& method, const Spans& row,
                         bool staged, ScratchBuffer& scratch,
                         const Meter& meter)
    : schedule_(schedule),
      method_(method),
      row_(row),
      staged_(staged || method.codec != nullptr),
      scratch_(scratch),
      meter_(meter),
      out_(schedule.peers.size()),
      in_(schedule.peers.size()),
      sources_(schedule.size) {
  for (size_t t = 0; t < row.num_tensors(); ++t) {
    const TensorSpan& tensor = row.tensor(t);
    in_place_ =
        in_place_ || (tensor.count > 0 && tensor.input == tensor.output);
  }
}

Result<SendReceivePlan> ExchangeRun::Plan(uint64_t tag) {
  tag_ = tag;
  KR_RETURN_IF_ERROR(Reserve());
  SendReceivePlan plan = Bind(tag);
  plan.advance = [this](SendReceivePlan& p) { Advance(p); };
  return plan;
}

// The lanes of scratch memory, each of `lag` slots:
//
//   values that arrive      one for each peer
//   values that are staged  one for each peer and one for this rank; of a one
//                           shot, one
//   results, staged         one that goes out, and one for each peer's
Status ExchangeRun::Reserve() {
  const size_t bytes = schedule_.max_count() * row_.wire_size();
  slot_bytes_ = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  size_t lanes = num_peers();
  if (staged_) lanes += schedule_.one_shot ? 1 : num_peers() + 1;
  if (staged_ && schedule_.has_results) lanes += num_peers() + 1;
  KR_ASSIGN_OR_RETURN(void* memory,
                      scratch_.Reserve(lanes * schedule_.lag * slot_bytes_));
  memory_ = static_cast<char*>(memory);
  return OkStatus();
}

char* ExchangeRun::Slot(size_t lane, int64_t step) const {
  const size_t slot = lane * schedule_.lag + step % schedule_.lag;
  return memory_ + slot * slot_bytes_;
}

char* ExchangeRun::ArrivedValues(size_t peer, int64_t step) const {
  return Slot(peer, step);
}

char* ExchangeRun::StagedValues(size_t peer, int64_t step) const {
  return Slot(num_peers() + (schedule_.one_shot ? 0 : peer), step);
}

char* ExchangeRun::OwnValues(int64_t step) const {
  return StagedValues(num_peers(), step);
}

char* ExchangeRun::StagedResult(int64_t step) const {
  return Slot(2 * num_peers() + 1, step);
}

char* ExchangeRun::ArrivedResult(size_t peer, int64_t step) const {
  return Slot(2 * num_peers() + 2 + peer, step);
}

SendReceivePlan ExchangeRun::Bind(uint64_t tag) {
  SendReceivePlan plan;
  plan.tag = tag;
  for (size_t k = 0; k < num_peers(); ++k) {
    plan.outgoing.push_back({schedule_.peers[k], {}});
    plan.incoming.push_back({schedule_.peers[k], {}});
    BindSends(k, plan.outgoing.back());
    BindReceives(k, plan.incoming.back());
  }
  return plan;
}

void ExchangeRun::BindSends(size_t peer, Outgoing& outgoing) {
  for (const Block& block : schedule_.sends[peer]) {
    if (block.kind == Kind::kValues) {
      AddSegments(row_, block.range,
                  staged_ ? StagedValues(peer, block.step) : nullptr,
                  &SpanPiece::input, outgoing.segments);
    } else {
      AddSegments(row_, block.range,
                  staged_ ? StagedResult(block.step) : nullptr,
                  &SpanPiece::output, outgoing.segments);
    }
    out_[peer].ends.push_back(outgoing.segments.size());
  }
}

void ExchangeRun::BindReceives(size_t peer, Incoming& incoming) {
  for (const Block& block : schedule_.receives[peer]) {
    if (block.kind == Kind::kValues) {
      AddSegments(row_, block.range, ArrivedValues(peer, block.step),
                  &SpanPiece::output, incoming.segments);
    } else {
      AddSegments(row_, block.range,
                  staged_ ? ArrivedResult(peer, block.step) : nullptr,
                  &SpanPiece::output, incoming.segments);
    }
    in_[peer].ends.push_back(incoming.segments.size());
  }
}

// A block without elements is noted with the next that has some: nothing waits
// for it but what comes after that.
void ExchangeRun::Advance(SendReceivePlan& plan) {
  NoteSent(plan);
  NoteReceived(plan);
  bool changed = true;
  while (changed) {
    changed = false;
    for (; CanStageForAll(); changed = true) {
      const Block& block = schedule_.sends.front()[staged_steps_];
      Stage(block.range, StagedValues(0, staged_steps_));
      ++staged_steps_;
    }
    for (; CanFold(); changed = true) Fold();
  }
  Release(plan);
  Allow(plan);
}

void ExchangeRun::NoteSent(const SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    Stream& stream = out_[k];
    while (stream.done < stream.open &&
           plan.outgoing[k].sent >= stream.ends[stream.done]) {
      const Block& block = schedule_.sends[k][stream.done++];
      ++(block.kind == Kind::kValues ? stream.values : stream.results);
    }
  }
}

void ExchangeRun::NoteReceived(const SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    Stream& stream = in_[k];
    while (stream.done < stream.open &&
           plan.incoming[k].received >= stream.ends[stream.done]) {
      const Block& block = schedule_.receives[k][stream.done++];
      if (block.kind == Kind::kValues) {
        ++stream.values;
        continue;
      }
      ++stream.results;
      if (!staged_) continue;
      const TimedPhase time(meter_, TracePhase::kUnpack, tag_);
      const char* wire = ArrivedResult(k, block.step);
      row_.ForEach(block.range, [&](const SpanPiece& piece) {
        method_.Decode(piece, wire + piece.at);
      });
    }
  }
}

// The values of a step that all have sent are there; and what the fold
// overwrites is not needed any more.
bool ExchangeRun::CanFold() const {
  if (folded_ == num_steps()) return false;
  if (schedule_.one_shot && staged_ && staged_steps_ <= folded_) return false;
  const bool waits_for_sends = schedule_.one_shot && !staged_ && in_place_;
  const bool stages_results = staged_ && schedule_.has_results;
  for (size_t k = 0; k < num_peers(); ++k) {
    if (in_[k].values <= folded_) return false;
    if (waits_for_sends && out_[k].values <= folded_) return false;
    if (stages_results && out_[k].results + schedule_.lag <= folded_) {
      return false;
    }
  }
  return true;
}

void ExchangeRun::Fold() {
  const int64_t step = folded_++;
  const Range& range = schedule_.folds[step];
  const bool encodes = method_.codec != nullptr;
  if (encodes && !schedule_.one_shot) Stage(range, OwnValues(step));
  const TimedPhase time(meter_, TracePhase::kReduce, tag_);
  const bool shares = staged_ && schedule_.has_results;
  row_.ForEach(range, [&](const SpanPiece& piece) {
    for (size_t k = 0; k < num_peers(); ++k) {
      sources_[schedule_.peers[k]] = ArrivedValues(k, step) + piece.at;
    }
    sources_[schedule_.rank] =
        encodes ? OwnValues(step) + piece.at : piece.input;
    method_.Fold(piece, sources_.data(), schedule_.size,
                 shares ? StagedResult(step) + piece.at : nullptr,
                 /*streams=*/false);
  });
}

// Of a one shot: the slot is free once all have been sent, and this rank has
// folded, what it holds.
bool ExchangeRun::CanStageForAll() const {
  if (!staged_ || !schedule_.one_shot) return false;
  if (staged_steps_ == num_steps()) return false;
  if (staged_steps_ >= folded_ + schedule_.lag) return false;
  return std::all_of(out_.begin(), out_.end(), [this](const Stream& stream) {
    return staged_steps_ < stream.values + schedule_.lag;
  });
}

void ExchangeRun::Stage(const Range& range, char* to) {
  const TimedPhase time(meter_, TracePhase::kPack, tag_);
  row_.ForEach(range, [&](const SpanPiece& piece) {
    method_.Encode(to + piece.at, piece);
  });
}

bool ExchangeRun::ReleaseBlock(size_t peer, const Block& block) {
  if (block.kind == Kind::kResult) return block.step < folded_;
  if (!staged_) return true;
  if (schedule_.one_shot) return block.step < staged_steps_;
  if (block.step >= out_[peer].values + schedule_.lag) return false;
  Stage(block.range, StagedValues(peer, block.step));
  return true;
}

void ExchangeRun::Release(SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    plan.outgoing[k].released =
        Open(schedule_.sends[k], out_[k],
             [&](const Block& block) { return ReleaseBlock(k, block); });
  }
}

void ExchangeRun::Allow(SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    plan.incoming[k].allowed =
        Open(schedule_.receives[k], in_[k],
             [&](const Block& block) { return AllowsBlock(k, block); });
  }
}

bool ExchangeRun::AllowsBlock(size_t peer, const Block& block) const {
  if (block.kind == Kind::kValues) {
    return block.step < folded_ + schedule_.lag;
  }
  return !staged_ || block.step < in_[peer].results + schedule_.lag;
}

template <typename May>
size_t ExchangeRun::Open(const std::vector<Block>& blocks, Stream& stream,
                         const May& may) {
  while (stream.open < blocks.size() && may(blocks[stream.open])) {
    ++stream.open;
  }
  return stream.open == 0 ? 0 : stream.ends[stream.open - 1];
}

}  // namespace keras_ring
