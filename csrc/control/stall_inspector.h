// StallInspector: when to report tensors that wait, and with which text.
#ifndef KERAS_RING_CONTROL_STALL_INSPECTOR_H_
#define KERAS_RING_CONTROL_STALL_INSPECTOR_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/control/joined_ranks.h"
#include "csrc/control/rank_activity.h"

namespace keras_ring {

// A tensor that some ranks have asked for and others have not.
struct StalledTensor {
  std::string name;
  std::string label;           // "allreduce 'dense/kernel'"
  std::vector<int32_t> ranks;  // that have it, ascending
  TimePoint since;             // the first of them has asked
  TimePoint last;              // the last of them has
};

// The replies of ranks that others wait for, and the names they were asked
// about.
struct ActivityReplies {
  std::vector<int32_t> asked;  // ascending
  std::vector<std::string> names;
  std::map<int32_t, RankActivity> activity;  // by rank
};

class StallInspector {
 public:
  // Zero durations: never. `ranks`: those of `size`.
  StallInspector(int size, Duration check_time, Duration shutdown_time,
                 RankSet ranks = {})
      : size_(size),
        check_time_(check_time),
        shutdown_time_(shutdown_time),
        ranks_(std::move(ranks)) {}

  // The ranks that are not waited for.
  void SetJoined(const JoinedRanks& joined) { joined_ = joined; }

  // Returns when the waiting tensors next need a look. `oldest`: the time of
  // the oldest of them, if there are any.
  std::optional<TimePoint> NextCheck(
      const std::optional<TimePoint>& oldest) const;

  // Returns whether a report is due for tensors that wait since `oldest`: the
  // first after the check time, each later one after twice as long.
  bool ReportDue(TimePoint now, TimePoint oldest);

  // A deadlock is only assumed when no rank has asked for any waiting tensor
  // for as long as the check time: a rank that has just asked may ask for more.
  // The ranks never ask at the same time, so the first report comes too early
  // for that. Then the next look is due as soon as the youngest request is old
  // enough, however late the next report is.
  bool LookDue(TimePoint now) const { return next_look_ && now >= *next_look_; }
  // To be called after each look, also that of a report. `youngest`: when a
  // rank last asked for a tensor that waits.
  void Looked(TimePoint now, TimePoint youngest);
  // A rank has asked for something that may have to wait.
  void Asked(TimePoint now) {
    if (looked_ && !next_look_) next_look_ = now + check_time_;
  }

  // No tensor waits any more.
  void Reset();

  // Chooses the ranks to ask, and the names to ask about, before a report. In a
  // large job not all of them.
  ActivityReplies MakeQuery(const std::vector<StalledTensor>& stalled) const;

  // The text of a report.
  std::string Report(const std::vector<StalledTensor>& stalled,
                     const ActivityReplies& answers, TimePoint now) const;

  // Returns the error that ends `tensor`, if it has waited beyond the shutdown
  // time.
  Status Verdict(const StalledTensor& tensor, const ActivityReplies& answers,
                 TimePoint now) const;

  // Returns the error of a job in which every rank waits for something and no
  // tensor can ever become ready, because the ranks wait for different names;
  // OK if some rank waits for nothing and may still contribute the missing
  // tensor.
  Status Deadlock(const std::vector<StalledTensor>& stalled,
                  const ActivityReplies& answers) const;

 private:
  std::vector<int32_t> Missing(const StalledTensor& tensor) const;
  // "asked for by rank 0, missing ranks 1-2"
  std::string WhoseText(const StalledTensor& tensor) const;
  // "\n  Rank 2 is in no collective ...", for each of `ranks` that was asked.
  std::string DoingText(const std::vector<int32_t>& ranks,
                        const ActivityReplies& answers) const;
  // Returns a sentence on the cause, as far as the replies show it; or nothing.
  std::string Explanation(const std::vector<StalledTensor>& stalled,
                          const ActivityReplies& answers) const;
  // "Rank 2 has", "Ranks 0-1 have"
  std::string SubjectText(const std::vector<int32_t>& ranks) const;
  // " Rank 2 has joined ...", or nothing.
  std::string JoinedText() const;

  const int size_;
  const Duration check_time_;
  const Duration shutdown_time_;
  const RankSet ranks_;
  JoinedRanks joined_;
  std::optional<TimePoint> next_report_;
  bool looked_ = false;  // since the last Reset
  std::optional<TimePoint> next_look_;
  Duration interval_ = Duration::zero();
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_STALL_INSPECTOR_H_
