// StallMonitor: a node's part in finding out what waits for too long, and why.
//
// Inner nodes tell the coordinator what waits below them. It asks the ranks
// that others wait for what they do, reports that, and fails what can never be
// ready.
//
// Where every host has something to tell, so has every leader on the way up. So
// that the coordinator does not hear of each from each, what comes from below
// is taken together: a node looks at what it knows, and passes it on, once in a
// while, and the later the more levels are below it.
#ifndef KERAS_RING_CONTROL_STALL_MONITOR_H_
#define KERAS_RING_CONTROL_STALL_MONITOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/message.h"
#include "csrc/control/rank_activity.h"
#include "csrc/control/stall_inspector.h"

namespace keras_ring {

struct StallOptions {
  Duration check_time = std::chrono::seconds(60);  // zero: never
  Duration shutdown_time = Duration::zero();       // zero: never
  // What this rank is doing, for others that wait for `names`.
  std::function<RankActivity(const std::vector<std::string>& names)> describe;
};

class StallMonitor {
 public:
  // The node that it is a part of.
  class Node {
   public:
    virtual ~Node() = default;
    // What waits at this node itself.
    virtual std::vector<StalledTensor> ListPending() const = 0;
    // The name has failed since a child had applied so many decisions.
    virtual bool HasFailedSince(const std::string& name,
                                uint64_t sent_at) const = 0;
    virtual uint64_t Sequence() const = 0;  // decisions applied
    // Coordinator: nothing is ready or decided and not launched.
    virtual bool Idle() const = 0;
    virtual void Send(int peer, Message message) = 0;
    // Coordinator: for the log.
    virtual void Report(std::string text) = 0;
    // Coordinator.
    virtual void Fail(std::vector<std::string> names, const Status& status) = 0;
  };

  // References must outlive the object. `ranks`: those of the tree.
  StallMonitor(const ControlTree& tree, const RankSet& ranks,
               StallOptions options, const Clock& clock, Node& node);

  // A rank has asked for something that may have to wait. `first`: nothing
  // waited before.
  void OnPending(TimePoint now, bool first);
  void SetJoined(const JoinedRanks& joined) { inspector_.SetJoined(joined); }
  // The name waits no more; or not below that child.
  void Forget(const std::string& name);
  void OnReady(int child, const std::string& name);

  // From a peer of the tree. An error if it may not say so.
  Status Handle(int peer, WaitingMessage message);
  Status Handle(int peer, StallQuery query);
  Status Handle(int peer, ActivityReply reply);

  // `oldest`: since when something may wait at this node, if anything does.
  std::optional<TimePoint> NextTimer(std::optional<TimePoint> oldest) const;
  // Whether OnTimer will look at what waits since `oldest`.
  bool CheckDue(TimePoint now, TimePoint oldest) const;
  void OnTimer(TimePoint now, std::optional<TimePoint> oldest);

 private:
  // What waits here, joined with what inner nodes below have reported of
  // subtrees that are not complete yet.
  std::vector<StalledTensor> List() const;
  // Adds what waits below, of which only the coordinator keeps the time.
  std::optional<TimePoint> OldestWith(std::optional<TimePoint> oldest) const;
  void Check(TimePoint now);
  // There is something to look at, with what else comes soon.
  void LookSoon(TimePoint now);
  void Look(TimePoint now);
  void ReportUp(const std::vector<StalledTensor>& stalled);
  // Coordinator: looks for a deadlock, and asks what the ranks do that others
  // wait for if there may be one, or if that is to be reported; then does.
  void Query(const std::vector<StalledTensor>& stalled);
  void Conclude();
  // Passes on the part of the query that is for ranks below.
  void AskBelow(const StallQuery& query);
  // Coordinator: nothing can ever be ready, as far as it knows.
  bool MayBeDeadlock(const std::vector<StalledTensor>& stalled) const;
  RankActivity Describe(const std::vector<std::string>& names) const;
  void FailAll(const std::vector<StalledTensor>& stalled, const Status& status);

  const ControlTree& tree_;
  const StallOptions options_;
  const Clock& clock_;
  Node& node_;
  StallInspector inspector_;
  const Duration period_;  // between two looks
  const Duration gather_;  // from the first word of something to the look
  std::map<int, std::vector<StalledTensor>> waiting_below_;  // none is empty
  std::optional<TimePoint> looked_;
  std::optional<TimePoint> look_due_;
  // The coordinator's last question and what came of it; until when it waits
  // for the rest, and whether it reports then.
  ActivityReplies answers_;
  uint64_t question_ = 0;
  std::optional<TimePoint> inquiry_due_;
  bool report_wanted_ = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_STALL_MONITOR_H_
