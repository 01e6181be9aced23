// Controller: one rank's part in agreeing on what to run next.
//
// A state machine without threads, sockets or waiting: requests and messages
// go in, messages and decisions come out. So a test can drive any number of
// controllers through any interleaving, and the loop above is the only place
// that waits.
#ifndef KERAS_RING_CONTROL_CONTROLLER_H_
#define KERAS_RING_CONTROL_CONTROLLER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_checker.h"
#include "csrc/control/bucket_scheduler.h"
#include "csrc/control/clock_offset.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/decision.h"
#include "csrc/control/message.h"
#include "csrc/control/message_length.h"
#include "csrc/control/participants.h"
#include "csrc/control/readiness_table.h"
#include "csrc/control/request.h"
#include "csrc/control/response_cache.h"
#include "csrc/control/stall_monitor.h"

namespace keras_ring {

struct ControllerOptions {
  size_t cache_capacity = 65536;  // names
  BucketSchedulerOptions schedule;
  StallOptions stalls;
  // True if ranks measure the offsets of their clocks: on several hosts.
  // `shares_clock`: the parent in the tree is on this host.
  bool measures_clocks = false;
  bool shares_clock = true;
  // The limit of a message to another rank.
  size_t max_message_bytes = kMaxMessageBytes;
  // The clock to measure, if it is not the controller's own, which may leave
  // time out. Must outlive the controller.
  const Clock* measured_clock = nullptr;
};

class Controller final : private ReadinessTable::Listener,
                         private StallMonitor::Node {
 public:
  // `clock` and `counters` must outlive the controller. `ranks`: the set that
  // the tree's ranks are counted in.
  Controller(ControlTree tree, const ControllerOptions& options,
             const Clock& clock, Counters& counters, RankSet ranks = {});

  // Hands the controller over to another thread.
  void DetachFromThread() { thread_.Detach(); }

  // This rank is ready with `request`. The name must not be in flight here. For
  // a join, nothing may be in flight; and nothing may be submitted until the
  // command that ends it.
  void Submit(const RequestPtr& request);

  // Handles a message from a peer of the tree. An error means that the peer has
  // broken the protocol: the job must be aborted.
  Status OnMessage(int peer, std::string_view bytes);

  // `count` buckets were launched since the last call.
  void OnLaunched(int count);

  // This rank leaves; the coordinator will end the job. `reason` is empty if
  // the program has finished normally.
  void Leave(const std::string& reason);

  // Coordinator: sets the tunable on all ranks at the same point of the
  // sequence.
  void Tune(Tunable tunable, int64_t value);
  // Coordinator: ends this generation of the job.
  void Reconfigure(uint64_t generation);

  // Timers: to be called when NextTimer() has come (or at any time).
  void OnTimer();
  std::optional<TimePoint> NextTimer() const;

  // The messages and commands since the last call, in order.
  struct Output {
    std::vector<std::pair<int, std::string>> messages;  // to a peer of the tree
    std::vector<Command> commands;
    // Stall reports, for the log.
    std::vector<std::string> reports;
    // The offset of this rank's clock to rank 0's, when it has been measured
    // again.
    std::optional<ClockReading> clock;
    // Set by a peer's abort; the owner passes it on with AbortMessages.
    Status aborted;
  };
  Output Take();

  // Returns abort messages with `cause` for every peer but `except`.
  std::vector<std::pair<int, std::string>> AbortMessages(const Status& cause,
                                                         int except) const;

  // Returns messages for every peer: this rank leaves after an agreed end, and
  // has carried out all that was decided.
  std::vector<std::pair<int, std::string>> ByeMessages() const;
  // Returns whether that peer has sent its bye message.
  bool HasSaidBye(int peer) const { return byes_.count(peer) > 0; }

  uint64_t sequence() const { return sequence_; }
  const ResponseCache& cache() const { return cache_; }

 private:
  // See ReadinessTable::Listener.
  void OnSlotComplete(ResponseCache::Slot slot,
                      std::shared_ptr<const Response> agreed,
                      const LastReady& last) override;
  void OnVariantsComplete(const std::string& name,
                          std::vector<RequestVariant> variants,
                          const LastReady& last) override;
  void OnPending(TimePoint now, bool first) override {
    stalls_.OnPending(now, first);
  }
  // See StallMonitor::Node.
  std::vector<StalledTensor> ListPending() const override {
    return pending_.List();
  }
  bool HasFailedSince(const std::string& name,
                      uint64_t sent_at) const override {
    return pending_.HasFailedSince(name, sent_at);
  }
  uint64_t Sequence() const override { return sequence_; }
  bool Idle() const override { return scheduler_.idle(); }
  void Send(int peer, Message message) override;
  void Report(std::string text) override;
  void Fail(std::vector<std::string> names, const Status& status) override;

  Status Handle(int peer, ReadyMessage message);
  Status Handle(int peer, LeaveMessage message);
  Status Handle(int peer, DecisionMessage message);
  Status Handle(int peer, AbortMessage message);
  Status Handle(int peer, PingMessage message);
  Status Handle(int peer, JoinMessage message);
  Status Handle(int peer, ByeMessage message);
  Status Handle(int peer, const ClockQuery& message);
  Status Handle(int peer, const ClockReply& message);
  template <typename OfStalls>
  Status Handle(int peer, OfStalls message) {
    return stalls_.Handle(peer, std::move(message));
  }

  // For inner nodes.
  void SendUp(Message message) { Send(tree_.parent, std::move(message)); }
  // Uses as many messages as it takes.
  void FlushReady();
  // Decides the joins that came since the last Take, or sends them up.
  void FlushJoins();

  // For the coordinator only.
  void Decide(Decision decision);
  void FlushDecisions();
  void EndJob(const LeaveMessage& leave);
  // All ranks that have not joined have agreed.
  void Ready(std::optional<ResponseCache::Slot> slot,
             std::shared_ptr<const Response> agreed, const LastReady& last);

  // On every rank: applies the next decision to the replicated state, and makes
  // the command.
  Status Apply(const Decision& decision);
  Result<ExecuteCommand> Apply(const ExecuteDecision& decision);
  Result<FailCommand> Apply(const FailDecision& decision);
  Result<EndCommand> Apply(const EndDecision& decision);
  Result<PlanCommand> Apply(const PlanDecision& decision);
  Result<JoinCommand> Apply(const JoinDecision& decision);
  Result<TuneCommand> Apply(const TuneDecision& decision);
  Result<ReconfigureCommand> Apply(const ReconfigureDecision& decision);
  // After this, nothing is decided or ready.
  void End();
  Status CheckNonePends(
      const std::vector<std::shared_ptr<const Response>>& items);
  void ForgetEvicted();

  const ControlTree tree_;
  const RankSet ranks_;
  const Clock& clock_;
  const Clock& measured_clock_;
  Counters& counters_;
  const size_t max_bytes_;  // limit of a message's estimated size
  ThreadChecker thread_;    // it has no lock

  uint64_t sequence_ = 0;  // decisions applied
  bool ended_ = false;
  Participants participants_;
  ResponseCache cache_;
  ReadinessTable pending_;
  BucketScheduler scheduler_;  // of the coordinator
  StallMonitor stalls_;
  std::optional<ClockOffset> clock_offset_;

  // The number of decisions each child had applied when it last spoke.
  std::map<int, uint64_t> child_sequence_;
  // Inner nodes: complete in the subtree, sent up by the next Take.
  ReadyMessage ready_up_;
  // Joins of this rank and those below, not decided or sent up yet.
  std::set<int32_t> joining_;
  // Coordinator: decisions that the next Take sends down.
  DecisionMessage decided_;
  size_t decided_bytes_ = 0;  // its estimated size
  std::set<int> byes_;
  Output output_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_CONTROLLER_H_
