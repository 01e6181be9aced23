// ExchangeRun: carries out an ExchangeSchedule on tensors.
//
// Values are sent from the tensors and results are received into them, without
// a copy, unless they are compressed or the tensors are tiny: then they are
// *staged*, in memory that holds a few steps. So are sums of hosts.
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
#include "csrc/collective/sum_method.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// The reduction below an exchange: of the values of the ranks of a host, of
// which one rank exchanges for all, or of the sums of a smaller group of hosts,
// by another exchange. The exchange sends its sums. For schedules with
// `covers`.
class InnerLevel {
 public:
  virtual ~InnerLevel() = default;
  // Returns whether the values of a step are all there, and the memory for its
  // results is free.
  virtual bool IsReady(int64_t step) const = 0;
  // Begins to write the sums of covers[step] to `sums`. Called step after step.
  virtual void StartReduce(int64_t step, char* sums) = 0;
  // Returns whether these sums are there. They never will be if something has
  // failed meanwhile: then nothing that is there may be used.
  virtual bool HasReduced(int64_t step) = 0;
  // What is done with these sums and those of other hosts.
  virtual SumMethod& method() = 0;
  // Returns where the results of a piece go, in the wire format. The piece
  // begins `at` bytes after covers[step]. It may be the piece's output.
  virtual char* ResultsOf(int64_t step, const SpanPiece& piece, size_t at) = 0;
  // The results of a step are all there, and in the outputs.
  virtual void Done(int64_t step) = 0;
};

// The data that a schedule is run on. All references must outlive the run.
struct ExchangeBinding {
  const FoldMethod& method;
  const Spans& row;
  // Ranks of the transport, by those of the schedule. Empty: the same ranks.
  std::vector<int> ranks = {};
  // If true, values and results are staged. Compressed ones are in any case.
  bool staged = false;
  InnerLevel* below = nullptr;  // null: each rank exchanges its own values
  // the number of levels below
  int level = 0;
  // If true, an exchange above folds what this rank would fold, and provides
  // the results. Then this one has a level below, too.
  bool is_below = false;
};

class ExchangeRun final : public InnerLevel {
 public:
  // `scratch` must have no other user meanwhile.
  ExchangeRun(const ExchangeSchedule& schedule, const ExchangeBinding& binding,
              ScratchBuffer& scratch, const Meter& meter);

  // Returns the plan, which can be run once; this object must outlive it.
  Result<SendReceivePlan> Plan(uint64_t tag);
  // Adds the streams of this run to a plan that calls Advance. The plan must
  // have no streams with these peers yet.
  Status AddTo(SendReceivePlan& plan);
  // See SendReceivePlan::advance. Returns whether anything has changed, which
  // may make more possible on the levels below and above.
  bool Advance(SendReceivePlan& plan);
  // The number of steps whose results are all there.
  int64_t num_done() const { return done_; }

  // InnerLevel, for the exchange above:
  bool IsReady(int64_t step) const override;
  void StartReduce(int64_t step, char* sums) override;
  bool HasReduced(int64_t step) override { return step < reduced_; }
  SumMethod& method() override { return below_->method(); }
  char* ResultsOf(int64_t step, const SpanPiece& piece, size_t at) override {
    return below_->ResultsOf(
        step, piece,
        InCover(step, schedule_.folds[step]) * row_.wire_size() + at);
  }
  void Done(int64_t step) override;

 private:
  // The progress of the blocks of one stream.
  struct Stream {
    // ends[b]: the number of segments in the plan's stream for blocks 0 to b.
    std::vector<size_t> ends;
    size_t open = 0;     // blocks that may move: released, or allowed
    size_t done = 0;     // blocks that have moved, and of which that was noted
    int64_t values = 0;  // of these
    int64_t results = 0;
  };

  Status Reserve();
  void Bind(SendReceivePlan& plan);
  void BindSends(size_t peer, Outgoing& outgoing);
  void BindReceives(size_t peer, Incoming& incoming);
  void NoteSent(SendReceivePlan& plan);
  void NoteReceived(SendReceivePlan& plan);
  bool HasValues(int64_t step) const;
  bool CanFold() const;
  // Returns whether the memory for results of a step holds none that are still
  // to be sent.
  bool HasSentResults(int64_t step) const;
  void Fold();
  bool CanStageForAll() const;
  void StageForAll();
  // Notes the steps whose staging has completed.
  void NoteStaged();
  void Stage(const Range& range, char* to);
  void NoteDone();
  // These open the blocks that may move.
  void Release(SendReceivePlan& plan);
  void Allow(SendReceivePlan& plan);
  // `segments`: set to the number of open segments of the stream.
  template <typename May>
  void Open(const std::vector<ExchangeBlock>& blocks, const May& may,
            Stream& stream, size_t& segments);
  // Stages the block if needed. Returns whether it may be sent.
  bool ReleaseBlock(size_t peer, const ExchangeBlock& block);
  bool AllowsBlock(size_t peer, const ExchangeBlock& block) const;

  Outgoing& OutgoingOf(size_t peer, SendReceivePlan& plan) const {
    return plan.outgoing[first_stream_ + peer];
  }
  Incoming& IncomingOf(size_t peer, SendReceivePlan& plan) const {
    return plan.incoming[first_stream_ + peer];
  }
  size_t num_peers() const { return schedule_.peers.size(); }
  int64_t num_steps() const {
    return static_cast<int64_t>(schedule_.folds.size());
  }
  // Returns whether the staged data is the same for all peers, so that there is
  // one copy.
  bool stages_for_all() const { return staged_ && !schedule_.covers.empty(); }
  bool stages_results() const { return staged_ && schedule_.has_results; }
  size_t value_size() const;
  // The places of blocks in scratch memory: values that arrive from a peer,
  // values for a peer, and this rank's own.
  char* ArrivedValues(size_t peer, int64_t step) const;
  char* StagedValues(size_t peer, const ExchangeBlock& block) const;
  char* OwnValues(int64_t step) const;
  // Where results of a piece of `block` are, in the wire format: perhaps in its
  // output.
  char* OwnResults(const ExchangeBlock& block, const SpanPiece& piece) const;
  char* ArrivedResults(size_t peer, const ExchangeBlock& block,
                       const SpanPiece& piece) const;
  char* Slot(size_t lane, int64_t step) const;
  size_t first_result_lane() const;
  char* SlotForAll(int64_t step) const;  // of data that is staged for all
  // The distance in elements from the beginning of what is folded to that of
  // the block: for values that arrive, or results that are sent.
  int64_t InFold(const ExchangeBlock& block) const {
    return block.range.begin - schedule_.folds[block.step].begin;
  }
  // The distance in elements from the beginning of covers[step] to that of
  // `range`.
  int64_t InCover(int64_t step, const Range& range) const {
    return range.begin - schedule_.covers[step].begin;
  }

  const ExchangeSchedule& schedule_;
  const FoldMethod& method_;
  const Spans& row_;
  const std::vector<int> ranks_;
  InnerLevel* const below_;
  const int level_;
  const bool is_below_;
  const bool staged_;
  ScratchBuffer& scratch_;
  const Meter meter_;
  uint64_t tag_ = 0;
  size_t first_stream_ = 0;  // of the plan

  size_t slot_bytes_ = 0;
  size_t cover_bytes_ = 0;
  char* memory_ = nullptr;
  char* for_all_ = nullptr;  // in it
  std::vector<Stream> out_;  // by peer
  std::vector<Stream> in_;
  int64_t reduced_ = 0;       // steps whose values are not needed any more
  int64_t folded_ = 0;        // steps whose results are there, of this rank
  int64_t stagings_ = 0;      // that were begun, where one is for all
  int64_t staged_steps_ = 0;  // and are complete
  int64_t done_ = 0;
  int64_t changes_ = 0;               // of all of this
  bool in_place_ = false;             // an input, or part of it, is its output
  std::vector<const void*> sources_;  // by rank
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_EXCHANGE_RUN_H_
