#include "csrc/collective/net/exchange_run.h"

#include <algorithm>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/round.h"

namespace keras_ring {
namespace {

using Block = ExchangeBlock;
using Kind = ExchangeBlock::Kind;

constexpr size_t kAlignment = 64;  // of steps in scratch memory

// Adds a piece of memory to the segments of a block, which begin with
// segments[first]: pieces that follow each other are one.
template <typename Segments, typename Pointer>
void AddSegment(size_t first, Pointer memory, size_t bytes,
                Segments& segments) {
  if (segments.size() > first) {
    auto& last = segments.back();
    if (static_cast<const char*>(last.data) + last.bytes == memory) {
      last.bytes += bytes;
      return;
    }
  }
  segments.push_back({memory, bytes});
}

}  // namespace

ExchangeRun::ExchangeRun(const ExchangeSchedule& schedule,
                         const ExchangeBinding& binding, ScratchBuffer& scratch,
                         const Meter& meter)
    : schedule_(schedule),
      method_(binding.method),
      row_(binding.row),
      ranks_(binding.ranks),
      below_(binding.below),
      level_(binding.level),
      is_below_(binding.is_below),
      staged_(binding.staged || method_.codec != nullptr || below_ != nullptr),
      scratch_(scratch),
      meter_(meter),
      out_(schedule.peers.size()),
      in_(schedule.peers.size()),
      sources_(schedule.size) {
  KR_CHECK(below_ == nullptr || !schedule.covers.empty() || num_steps() == 0);
  KR_CHECK(!is_below_ || (below_ != nullptr && schedule.has_results));
  for (size_t t = 0; t < row_.num_tensors(); ++t) {
    const TensorSpan& tensor = row_.tensor(t);
    in_place_ =
        in_place_ || (tensor.count > 0 && tensor.input == tensor.output);
  }
}

Result<SendReceivePlan> ExchangeRun::Plan(uint64_t tag) {
  SendReceivePlan plan;
  plan.tag = tag;
  KR_RETURN_IF_ERROR(AddTo(plan));
  plan.advance = [this](SendReceivePlan& p) { Advance(p); };
  return plan;
}

Status ExchangeRun::AddTo(SendReceivePlan& plan) {
  tag_ = plan.tag;
  first_stream_ = plan.outgoing.size();
  KR_RETURN_IF_ERROR(Reserve());
  Bind(plan);
  return OkStatus();
}

size_t ExchangeRun::value_size() const {
  return below_ != nullptr ? below_->method().size() : row_.wire_size();
}

// The lanes of scratch memory, each of `lag` slots:
//
//   values that arrive      one for each peer
//   values that are staged  one for each peer and one for this rank
//   results, staged         one that goes out, and one for each peer's; the
//                           level below has memory of its own for them
//   values for all, staged  in place of the second: one, of larger slots
Status ExchangeRun::Reserve() {
  const size_t element_size = std::max(row_.wire_size(), value_size());
  const auto slot = [&](int64_t count) {
    return RoundUp(count * element_size, kAlignment);
  };
  slot_bytes_ = slot(schedule_.max_block());
  cover_bytes_ = slot(schedule_.max_cover());
  size_t lanes = first_result_lane();
  if (stages_results() && below_ == nullptr) lanes += num_peers() + 1;
  const size_t for_all = stages_for_all() ? schedule_.lag * cover_bytes_ : 0;
  KR_ASSIGN_OR_RETURN(
      void* memory,
      scratch_.Reserve(lanes * schedule_.lag * slot_bytes_ + for_all));
  memory_ = static_cast<char*>(memory);
  for_all_ = memory_ + lanes * schedule_.lag * slot_bytes_;
  return OkStatus();
}

size_t ExchangeRun::first_result_lane() const {
  const bool stages_for_each = staged_ && !stages_for_all();
  return num_peers() + (stages_for_each ? num_peers() + 1 : 0);
}

char* ExchangeRun::Slot(size_t lane, int64_t step) const {
  const size_t slot = lane * schedule_.lag + step % schedule_.lag;
  return memory_ + slot * slot_bytes_;
}

char* ExchangeRun::SlotForAll(int64_t step) const {
  return for_all_ + (step % schedule_.lag) * cover_bytes_;
}

char* ExchangeRun::ArrivedValues(size_t peer, int64_t step) const {
  return Slot(peer, step);
}

char* ExchangeRun::StagedValues(size_t peer, const Block& block) const {
  if (!stages_for_all()) return Slot(num_peers() + peer, block.step);
  return SlotForAll(block.step) +
         InCover(block.step, block.range) * value_size();
}

char* ExchangeRun::OwnValues(int64_t step) const {
  return StagedValues(num_peers(),
                      {Kind::kValues, step, schedule_.folds[step]});
}

char* ExchangeRun::OwnResults(const Block& block,
                              const SpanPiece& piece) const {
  if (below_ != nullptr) {
    return below_->ResultsOf(
        block.step, piece,
        InCover(block.step, block.range) * row_.wire_size() + piece.at);
  }
  return staged_ ? Slot(first_result_lane(), block.step) +
                       InFold(block) * row_.wire_size() + piece.at
                 : piece.output;
}

char* ExchangeRun::ArrivedResults(size_t peer, const Block& block,
                                  const SpanPiece& piece) const {
  if (below_ != nullptr) return OwnResults(block, piece);
  return staged_ ? Slot(first_result_lane() + 1 + peer, block.step) + piece.at
                 : piece.output;
}

void ExchangeRun::Bind(SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    const int peer = schedule_.peers[k];
    const int rank = ranks_.empty() ? peer : ranks_[peer];
    plan.outgoing.push_back({rank, {}});
    plan.incoming.push_back({rank, {}});
    BindSends(k, plan.outgoing.back());
    BindReceives(k, plan.incoming.back());
  }
}

void ExchangeRun::BindSends(size_t peer, Outgoing& outgoing) {
  for (const Block& block : schedule_.sends[peer]) {
    const size_t first = outgoing.segments.size();
    if (block.kind == Kind::kValues && staged_) {
      if (block.range.count() > 0) {
        outgoing.segments.push_back(
            {StagedValues(peer, block), block.range.count() * value_size()});
      }
    } else {
      row_.ForEach(block.range, [&](const SpanPiece& piece) {
        AddSegment(first,
                   block.kind == Kind::kValues
                       ? piece.input
                       : static_cast<const char*>(OwnResults(block, piece)),
                   piece.count * row_.wire_size(), outgoing.segments);
      });
    }
    out_[peer].ends.push_back(outgoing.segments.size());
  }
}

void ExchangeRun::BindReceives(size_t peer, Incoming& incoming) {
  for (const Block& block : schedule_.receives[peer]) {
    const size_t first = incoming.segments.size();
    if (block.kind == Kind::kValues) {
      if (block.range.count() > 0) {
        incoming.segments.push_back(
            {ArrivedValues(peer, block.step) + InFold(block) * value_size(),
             block.range.count() * value_size()});
      }
    } else {
      row_.ForEach(block.range, [&](const SpanPiece& piece) {
        AddSegment(first, ArrivedResults(peer, block, piece),
                   piece.count * row_.wire_size(), incoming.segments);
      });
    }
    in_[peer].ends.push_back(incoming.segments.size());
  }
}

bool ExchangeRun::Advance(SendReceivePlan& plan) {
  const int64_t before = changes_;
  int64_t seen;
  // No event is reported for a block without elements: it counts as moved as
  // soon as it may move.
  do {
    seen = changes_;
    NoteSent(plan);
    NoteReceived(plan);
    while (CanStageForAll()) StageForAll();
    NoteStaged();
    while (CanFold()) Fold();
    NoteDone();
    Release(plan);
    Allow(plan);
  } while (changes_ != seen);
  return changes_ != before;
}

void ExchangeRun::NoteSent(SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    Stream& stream = out_[k];
    for (; stream.done < stream.open &&
           OutgoingOf(k, plan).sent >= stream.ends[stream.done];
         ++changes_) {
      const Block& block = schedule_.sends[k][stream.done++];
      ++(block.kind == Kind::kValues ? stream.values : stream.results);
    }
  }
}

void ExchangeRun::NoteReceived(SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    Stream& stream = in_[k];
    for (; stream.done < stream.open &&
           IncomingOf(k, plan).received >= stream.ends[stream.done];
         ++changes_) {
      const Block& block = schedule_.receives[k][stream.done++];
      if (block.kind == Kind::kValues) {
        ++stream.values;
        continue;
      }
      ++stream.results;
      if (!staged_) continue;
      const TimedPhase time(meter_, TracePhase::kUnpack, tag_);
      row_.ForEach(block.range, [&](const SpanPiece& piece) {
        method_.Decode(piece, ArrivedResults(k, block, piece));
      });
    }
  }
}

bool ExchangeRun::HasValues(int64_t step) const {
  if (stages_for_all() && staged_steps_ <= step) return false;
  return std::all_of(in_.begin(), in_.end(), [step](const Stream& stream) {
    return stream.values > step;
  });
}

// Returns whether the values of the step are there, and the memory that the
// fold overwrites is not needed any more.
bool ExchangeRun::CanFold() const {
  if (is_below_ || folded_ == num_steps() || !HasValues(folded_)) return false;
  if (schedule_.one_shot && !staged_ && in_place_) {
    for (const Stream& stream : out_) {
      if (stream.values <= folded_) return false;
    }
  }
  return !stages_results() || HasSentResults(folded_);
}

bool ExchangeRun::IsReady(int64_t step) const {
  return HasValues(step) && HasSentResults(step);
}

void ExchangeRun::StartReduce(int64_t step, char* sums) {
  reduced_ = step + 1;
  ++changes_;
  if (schedule_.folds[step].count() == 0) return;
  for (size_t k = 0; k < num_peers(); ++k) {
    sources_[schedule_.peers[k]] = ArrivedValues(k, step);
  }
  sources_[schedule_.rank] = OwnValues(step);
  const TimedPhase time(meter_, TracePhase::kReduce, tag_);
  below_->method().Add(level_, schedule_.folds[step], sources_.data(),
                       schedule_.size, sums);
}

void ExchangeRun::Done(int64_t step) {
  folded_ = step + 1;
  ++changes_;
}

bool ExchangeRun::HasSentResults(int64_t step) const {
  return std::all_of(out_.begin(), out_.end(), [&](const Stream& stream) {
    return step < stream.results + schedule_.lag;
  });
}

void ExchangeRun::Fold() {
  const int64_t step = folded_++;
  reduced_ = folded_;
  ++changes_;
  const Range& range = schedule_.folds[step];
  const Block own{Kind::kResult, step, range};
  const bool encodes = method_.codec != nullptr && below_ == nullptr;
  if (encodes && !stages_for_all()) Stage(range, OwnValues(step));
  const bool own_is_staged = encodes || below_ != nullptr;
  // The level below needs results, too, that no other rank here does.
  const bool copies = stages_results() || below_ != nullptr;
  const TimedPhase time(meter_, TracePhase::kReduce, tag_);
  row_.ForEach(range, [&](const SpanPiece& piece) {
    const size_t at = piece.at / row_.wire_size() * value_size();
    for (size_t k = 0; k < num_peers(); ++k) {
      sources_[schedule_.peers[k]] = ArrivedValues(k, step) + at;
    }
    sources_[schedule_.rank] =
        own_is_staged ? OwnValues(step) + at : piece.input;
    char* copy = copies ? OwnResults(own, piece) : nullptr;
    if (copy == piece.output) copy = nullptr;
    if (below_ != nullptr) {
      below_->method().Fold(piece, sources_.data(), schedule_.size, copy);
    } else {
      method_.Fold(piece, sources_.data(), schedule_.size, copy,
                   /*streams=*/false);
    }
  });
}

void ExchangeRun::NoteDone() {
  const auto is_done = [this](int64_t step) {
    if (step >= folded_) return false;
    if (!schedule_.has_results) return true;
    return std::all_of(in_.begin(), in_.end(), [step](const Stream& stream) {
      return stream.results > step;
    });
  };
  for (; is_done(done_); ++done_, ++changes_) {
    if (below_ != nullptr) below_->Done(done_);
  }
}

// The slot is free once all peers have received its contents, and this rank has
// folded them.
bool ExchangeRun::CanStageForAll() const {
  if (!stages_for_all() || stagings_ == num_steps()) return false;
  if (stagings_ >= reduced_ + schedule_.lag) return false;
  if (below_ != nullptr && !below_->IsReady(stagings_)) return false;
  return std::all_of(out_.begin(), out_.end(), [this](const Stream& stream) {
    return stagings_ < stream.values + schedule_.lag;
  });
}

void ExchangeRun::StageForAll() {
  const int64_t step = stagings_++;
  ++changes_;
  char* const to = SlotForAll(step);
  if (below_ != nullptr) return below_->StartReduce(step, to);
  Stage(schedule_.covers[step], to);
}

void ExchangeRun::NoteStaged() {
  for (; staged_steps_ < stagings_ &&
         (below_ == nullptr || below_->HasReduced(staged_steps_));
       ++staged_steps_) {
    ++changes_;
  }
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
  if (stages_for_all()) return block.step < staged_steps_;
  if (block.step >= out_[peer].values + schedule_.lag) return false;
  Stage(block.range, StagedValues(peer, block));
  return true;
}

void ExchangeRun::Release(SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    const auto may = [&](const Block& block) { return ReleaseBlock(k, block); };
    Open(schedule_.sends[k], may, out_[k], OutgoingOf(k, plan).released);
  }
}

void ExchangeRun::Allow(SendReceivePlan& plan) {
  for (size_t k = 0; k < num_peers(); ++k) {
    const auto may = [&](const Block& block) { return AllowsBlock(k, block); };
    Open(schedule_.receives[k], may, in_[k], IncomingOf(k, plan).allowed);
  }
}

bool ExchangeRun::AllowsBlock(size_t peer, const Block& block) const {
  if (block.kind == Kind::kValues) {
    return block.step < reduced_ + schedule_.lag;
  }
  if (!staged_) return true;
  if (below_ == nullptr) return block.step < in_[peer].results + schedule_.lag;
  // The memory below for results is free when the step's values are there, and
  // when the results sent from it have left.
  return block.step < staged_steps_ && HasSentResults(block.step);
}

template <typename May>
void ExchangeRun::Open(const std::vector<Block>& blocks, const May& may,
                       Stream& stream, size_t& segments) {
  for (; stream.open < blocks.size() && may(blocks[stream.open]); ++changes_) {
    segments = stream.ends[stream.open++];
  }
}

}  // namespace keras_ring
