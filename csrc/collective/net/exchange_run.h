// ExchangeRun: carries out an ExchangeSchedule on tensors.
//
// Values are sent from the tensors and results are received into them, without
// a copy, unless they are compressed or the tensors are tiny: then they are
// *staged*, in memory that holds a few steps.
#ifndef KERAS_RING_COLLECTIVE_NET_EXCHANGE_RUN_H_
#define KERAS_RING_COLLECTIVE_NET_EXCHANGE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/status.h"
#include "csrc/collective/fold_method.h"
#include "csrc/collective/net/exchange.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/collective/spans.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

class ExchangeRun {
 public:
  // All must outlive the object; `scratch` has no other user meanwhile.
  // `staged`: alike on all ranks is not needed. Compressed values must be.
  ExchangeRun(const ExchangeSchedule& schedule, const FoldMethod& method,
              const Spans& row, bool staged, ScratchBuffer& scratch,
              const Meter& meter);

  // The plan to run, once; this object must outlive it.
  Result<SendReceivePlan> Plan(uint64_t tag);

 private:
  // How far the blocks of one stream are.
  struct Stream {
    // ends[b]: segments of the plan's stream that blocks 0 to b have together.
    std::vector<size_t> ends;
    size_t open = 0;     // blocks that may move: released, or allowed
    size_t done = 0;     // blocks that have moved, and of which that was noted
    int64_t values = 0;  // of these
    int64_t results = 0;
  };

  Status Reserve();
  SendReceivePlan Bind(uint64_t tag);
  void BindSends(size_t peer, Outgoing& outgoing);
  void BindReceives(size_t peer, Incoming& incoming);
  // Does what can be done now.
  void Advance(SendReceivePlan& plan);
  void NoteSent(const SendReceivePlan& plan);
  void NoteReceived(const SendReceivePlan& plan);
  bool CanFold() const;
  void Fold();
  bool CanStageForAll() const;
  void Stage(const Range& range, char* to);
  // These open the blocks that may move.
  void Release(SendReceivePlan& plan);
  void Allow(SendReceivePlan& plan);
  // Returns the segments that are open then.
  template <typename May>
  static size_t Open(const std::vector<ExchangeBlock>& blocks, Stream& stream,
                     const May& may);
  // Stages what has to be.
  bool ReleaseBlock(size_t peer, const ExchangeBlock& block);
  bool AllowsBlock(size_t peer, const ExchangeBlock& block) const;

  size_t num_peers() const { return schedule_.peers.size(); }
  int64_t num_steps() const {
    return static_cast<int64_t>(schedule_.folds.size());
  }
  // Where a step lies in scratch memory: values of a peer that have arrived,
  // values that go to one, the result that goes to all, and that of a peer.
  char* ArrivedValues(size_t peer, int64_t step) const;
  char* StagedValues(size_t peer, int64_t step) const;
  char* StagedResult(int64_t step) const;
  char* ArrivedResult(size_t peer, int64_t step) const;
  // This rank's own values, which nobody else needs.
  char* OwnValues(int64_t step) const;
  char* Slot(size_t lane, int64_t step) const;

  const ExchangeSchedule& schedule_;
  const FoldMethod& method_;
  const Spans& row_;
  const bool staged_;
  ScratchBuffer& scratch_;
  const Meter meter_;
  uint64_t tag_ = 0;

  size_t slot_bytes_ = 0;
  char* memory_ = nullptr;
  std::vector<Stream> out_;  // by peer
  std::vector<Stream> in_;
  int64_t folded_ = 0;        // steps
  int64_t staged_steps_ = 0;  // of a one shot, which stages once for all
  bool in_place_ = false;     // an input, or part of it, is its output
  std::vector<const void*> sources_;  // by rank
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_EXCHANGE_RUN_H_
