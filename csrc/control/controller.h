// Controller: one rank's part in agreeing on what to run next.
//
// A state machine without threads, sockets or waiting: requests and messages
// go in, messages and decisions come out. So a test can drive any number of
// controllers through any interleaving, and the loop above is the only place
// that waits.
#ifndef KERAS_RING_CONTROL_CONTROLLER_H_
#define KERAS_RING_CONTROL_CONTROLLER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_checker.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/message.h"
#include "csrc/control/name_table.h"
#include "csrc/control/rank_activity.h"
#include "csrc/control/request.h"
#include "csrc/control/response_cache.h"
#include "csrc/control/stall_inspector.h"
#include "csrc/control/step_planner.h"

namespace keras_ring {

struct ControllerOptions {
  int64_t fusion_threshold = 64 << 20;  // bytes
  size_t cache_capacity = 65536;        // names
  // How long the coordinator holds a ready tensor back for others to join it.
  Duration linger = Duration::zero();
  // Buckets decided and not yet executed. Two keep the data thread busy while
  // the next is agreed on; more would only make the buckets smaller.
  int max_outstanding = 2;
  Duration stall_check_time = std::chrono::seconds(60);  // zero: never
  Duration stall_shutdown_time = Duration::zero();       // zero: never
  // Describes what this rank is doing, for others that wait for `names`.
  std::function<RankActivity(const std::vector<std::string>& names)>
      describe_doing;
};

// A decision as this rank is to carry it out.
struct Command {
  Decision::Kind kind = Decision::Kind::kExecute;
  uint64_t sequence = 0;
  std::vector<std::shared_ptr<const Response>> items;  // kExecute
  std::vector<std::string> names;                      // kFail
  Status status;                                       // kFail, kEnd
  std::vector<std::vector<std::string>> plan;  // kPlan: buckets of names
  // kExecute: the ranks that bring nothing, ascending. If this rank is one of
  // them, it has not asked for the items.
  std::vector<int32_t> joined;
  // kJoin: which rank, and whether it was the last.
  int32_t rank = 0;
  bool all_joined = false;
};

class Controller {
 public:
  // `clock` and `counters` must outlive the controller. `ranks`: those of the
  // tree.
  Controller(ControlTree tree, const ControllerOptions& options,
             const Clock& clock, Counters& counters, RankSet ranks = {});

  // Another thread takes the controller over.
  void DetachFromThread() { thread_.Detach(); }

  // This rank is ready with `request`. The name is not in flight here. With a
  // join nothing is; and nothing is submitted until the command that ends it.
  void Submit(const RequestPtr& request);

  // A message from a peer of the tree. An error means that the peer does not
  // keep the protocol: the job must be aborted.
  Status OnMessage(int peer, std::string_view bytes);

  // `count` buckets were executed since the last call.
  void OnExecuted(int count);

  // This rank leaves; the coordinator will end the job. `reason` is empty for
  // a program that came to its end.
  void Leave(const std::string& reason);

  // Timers: to be called when NextTimer() has come (or at any time).
  void OnTimer();
  std::optional<TimePoint> NextTimer() const;

  // The messages and commands since the last call, in order.
  struct Output {
    std::vector<std::pair<int, std::string>> messages;  // to a peer of the tree
    std::vector<Command> commands;
    // Stall reports, for the log.
    std::vector<std::string> reports;
    // Set by a peer's abort; the receiver passes it on with AbortMessages.
    Status aborted;
  };
  Output Take();

  // `cause`, addressed to every peer but `except`.
  std::vector<std::pair<int, std::string>> AbortMessages(const Status& cause,
                                                         int except) const;

  // This rank leaves after an agreed end, and has done its share: addressed to
  // every peer.
  std::vector<std::pair<int, std::string>> ByeMessages() const;
  // Whether that peer has said so.
  bool HasSaidBye(int peer) const { return byes_.count(peer) > 0; }

  uint64_t sequence() const { return sequence_; }
  const ResponseCache& cache() const { return cache_; }

 private:
  // A name that some of this node's subtrees are ready with.
  struct Pending {
    // Slot, if every contribution so far named this same one.
    std::optional<ResponseCache::Slot> slot;
    std::shared_ptr<const Response> agreed;  // of the slot
    std::vector<RequestVersion> variants;    // the others
    std::vector<int> from;                   // contributors: self and children
    TimePoint since;                         // the first of them
    TimePoint last;                          // the last of them

    void Clear();
  };

  // An error if `from` has contributed already.
  Status Contribute(int from, uint64_t sent_at, ResponseCache::Slot slot,
                    std::shared_ptr<const Response> agreed);
  Status Contribute(int from, uint64_t sent_at,
                    std::vector<RequestVersion> variants);
  // The entry to add a contribution to; end() if that one belongs to a use of
  // the name that has failed since.
  NameTable<Pending>::iterator PendingFor(const std::string& name,
                                          uint64_t sent_at);
  Status AddContributor(Pending& pending, const std::string& name, int from);
  // Now, for all that one Take brings to its end: asked for each tensor, the
  // clock would cost more than the tensor.
  TimePoint BatchTime();
  static void ExpandSlot(Pending& pending, const std::vector<int32_t>& ranks);
  void CompleteIfReady(NameTable<Pending>::iterator it);
  // All of this node's ranks are ready with a slot, all with the same.
  void SlotComplete(ResponseCache::Slot slot,
                    std::shared_ptr<const Response> agreed);
  void VariantsComplete(const std::string& name,
                        std::vector<RequestVersion> variants);
  // The ranks of a contributor that have not joined.
  std::vector<int32_t> RanksOf(int from) const;
  // A name is complete at this node with so many contributors.
  size_t NumContributors() const;
  // Completes what has waited only for a rank that has joined.
  void CompleteWithoutJoined();
  bool HasJoined(int32_t rank) const;
  std::vector<int32_t> ReadyRanks(const Pending& pending) const;

  Status Handle(int peer, ReadyMessage message);
  Status Handle(int peer, WaitingMessage message);
  Status Handle(int peer, LeaveMessage message);
  Status Handle(int peer, DecisionMessage message);
  Status Handle(int peer, AbortMessage message);
  Status Handle(int peer, PingMessage message);
  Status Handle(int peer, JoinMessage message);
  Status Handle(int peer, ByeMessage message);
  Status Handle(int peer, StallQuery message);
  Status Handle(int peer, ActivityReply message);

  // Coordinator only.
  void DecideReady();
  std::vector<size_t> NextReady();
  void Decide(Decision decision);
  void EndJob(const LeaveMessage& leave);
  void DecideJoin(int32_t rank);
  // All have agreed who have not joined.
  void Ready(std::optional<ResponseCache::Slot> slot,
             std::shared_ptr<const Response> agreed);
  void Fail(std::vector<std::string> names, const Status& status);

  // Every rank: applies the next decision to cache and pending state.
  Status Apply(const Decision& decision);
  Status CheckNonePends(
      const std::vector<std::shared_ptr<const Response>>& items);
  void SendUp(Message message);
  void FlushReady();
  void ForgetEvicted();

  std::vector<StalledTensor> ListStalls() const;
  // Does what is due for what waits. `told`: what waits below is news.
  void LookAtStalls(bool told);
  // Inner nodes: tells the coordinator what waits below.
  void ReportStallsUp();
  // Coordinator: looks for a deadlock, and asks what the ranks do of which
  // others wait if there may be one, or if that is to be reported; then does.
  void QueryStalls(bool report);
  void ConcludeInquiry();
  // Coordinator: nothing can ever be ready, as far as it knows.
  bool MayBeDeadlock(const std::vector<StalledTensor>& stalled) const;
  void ForgetWaitingBelow(const std::string& name);
  RankActivity DescribeActivity(const std::vector<std::string>& names) const;
  void FailStalled(const std::vector<StalledTensor>& stalled,
                   const Status& status);

  const ControlTree tree_;
  const RankSet ranks_;
  const ControllerOptions options_;
  const Clock& clock_;
  Counters& counters_;
  const std::vector<int32_t> self_;  // {rank}
  ThreadChecker thread_;             // it has no lock

  uint64_t sequence_ = 0;  // decisions applied
  bool ended_ = false;
  // A part of what all ranks have alike, as is the cache. Since a rank joins
  // with nothing under way, none of its contributions is, either: what is
  // complete after its join was decided is so without it.
  std::vector<int32_t> joined_;  // ascending
  ResponseCache cache_;
  NameTable<Pending> pending_;
  // A lower bound for the age of what is pending, so that not every step looks
  // for it: nothing pending is older.
  TimePoint oldest_pending_;
  std::optional<TimePoint> batch_time_;

  // Names that a decision has failed, and its number: a contribution sent
  // before the sender knew must not count for the next use.
  std::unordered_map<std::string, uint64_t> failed_;
  // The number of decisions each child had applied when it last spoke.
  std::map<int, uint64_t> child_sequence_;

  // Inner nodes: complete below, to be sent up by the next Take.
  ReadyMessage ready_up_;

  // Coordinator: complete, waiting for a bucket.
  struct ReadyItem {
    std::optional<ResponseCache::Slot> slot;
    std::shared_ptr<const Response> agreed;
    TimePoint since;
  };
  std::vector<ReadyItem> ready_;
  StepPlanner planner_;
  int outstanding_ = 0;
  DecisionMessage decided_;

  StallInspector stalls_;
  std::map<int, std::vector<StalledTensor>> waiting_below_;
  // The coordinator's last question and what came of it; until when it waits
  // for the rest, and whether it reports then.
  ActivityReplies answers_;
  uint64_t question_ = 0;
  std::optional<TimePoint> inquiry_due_;
  bool report_wanted_ = false;
  std::set<int> byes_;
  Output output_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_CONTROLLER_H_
