// StallMonitor: a node's part in finding out which tensors wait for too long,
// and why.
//
// Inner nodes report to the coordinator what waits below them. The coordinator
// asks the ranks that others wait for what they are doing, reports that, and
// fails tensors that can never become ready.
//
// If every host has something to report, so does every leader on the way up. So
// that the coordinator does not receive every report of each, reports from
// below are combined: a node looks at what it knows, and passes it on, at
// intervals, and later the more levels are below it.
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
  // Returns what this rank is doing, for others that wait for `names`.
  std::function<RankActivity(const std::vector<std::string>& names)> describe;
};

class StallMonitor {
 public:
  // The node that owns the monitor.
  class Node {
   public:
    virtual ~Node() = default;
    // Returns the tensors that wait at this node itself.
    virtual std::vector<StalledTensor> ListPending() const = 0;
    // Returns whether the name has failed since a child had applied `sent_at`
    // decisions.
    virtual bool HasFailedSince(const std::string& name,
                                uint64_t sent_at) const = 0;
    virtual uint64_t Sequence() const = 0;  // decisions applied
    // Coordinator: returns whether nothing is ready, or decided but not
    // launched.
    virtual bool Idle() const = 0;
    virtual void Send(int peer, Message message) = 0;
    // Coordinator: writes to the log.
    virtual void Report(std::string text) = 0;
    // For the coordinator.
    virtual void Fail(std::vector<std::string> names, const Status& status) = 0;
  };

  // References must outlive the object. `ranks`: the set that the tree's ranks
  // are counted in.
  StallMonitor(const ControlTree& tree, const RankSet& ranks,
               StallOptions options, const Clock& clock, Node& node);

  // A rank has asked for something that may have to wait. `first`: nothing
  // waited before.
  void OnPending(TimePoint now, bool first);
  void SetJoined(const JoinedRanks& joined) { inspector_.SetJoined(joined); }
  // The name no longer waits at all, or no longer below that child.
  void Forget(const std::string& name);
  void OnReady(int child, const std::string& name);

  // Handle messages from a peer of the tree. An error if that peer may not send
  // them.
  Status Handle(int peer, WaitingMessage message);
  Status Handle(int peer, StallQuery query);
  Status Handle(int peer, ActivityReply reply);

  // `oldest`: since when something may wait at this node, if anything does.
  std::optional<TimePoint> NextTimer(std::optional<TimePoint> oldest) const;
  // Returns whether OnTimer will look at tensors that wait since `oldest`.
  bool CheckDue(TimePoint now, TimePoint oldest) const;
  void OnTimer(TimePoint now, std::optional<TimePoint> oldest);

 private:
  // Returns the tensors that wait here, merged with those that inner nodes
  // below have reported for subtrees that are not complete yet.
  std::vector<StalledTensor> List() const;
  // Adds the tensors that wait below, whose times only the coordinator keeps.
  std::optional<TimePoint> OldestWith(std::optional<TimePoint> oldest) const;
  void Check(TimePoint now);
  // Schedules a look, late enough to include reports that follow soon.
  void LookSoon(TimePoint now);
  void Look(TimePoint now);
  void ReportUp(const std::vector<StalledTensor>& stalled);
  // Coordinator: looks for a deadlock. If there may be one, or a report is due,
  // asks what the ranks that others wait for are doing; then Conclude reports.
  void Query(const std::vector<StalledTensor>& stalled);
  void Conclude();
  // Passes on the part of the query that is for ranks below.
  void AskBelow(const StallQuery& query);
  // Coordinator: returns whether, as far as it knows, nothing can ever become
  // ready.
  bool MayBeDeadlock(const std::vector<StalledTensor>& stalled) const;
  RankActivity Describe(const std::vector<std::string>& names) const;
  void FailAll(const std::vector<StalledTensor>& stalled, const Status& status);

  const ControlTree& tree_;
  const StallOptions options_;
  const Clock& clock_;
  Node& node_;
  StallInspector inspector_;
  const Duration period_;  // between two looks
  const Duration gather_;  // from the first report of something to the look
  std::map<int, std::vector<StalledTensor>> waiting_below_;  // none is empty
  std::optional<TimePoint> looked_;
  std::optional<TimePoint> look_due_;
  // The coordinator's last query and the replies to it; until when it waits for
  // the rest, and whether it reports then.
  ActivityReplies answers_;
  uint64_t question_ = 0;
  std::optional<TimePoint> inquiry_due_;
  bool report_wanted_ = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_STALL_MONITOR_H_
