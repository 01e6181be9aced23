// StallInspector: when to speak of tensors that wait, and what to say.
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

// The replies of ranks that others wait for, and what they were asked.
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

  // These ranks are not waited for.
  void SetJoined(const JoinedRanks& joined) { joined_ = joined; }

  // When the waiting tensors next need a look. `oldest`: of them, if any.
  std::optional<TimePoint> NextCheck(
      const std::optional<TimePoint>& oldest) const;

  // A report is due for what waits since `oldest`: the first after the check
  // time, then each after twice as long.
  bool ReportDue(TimePoint now, TimePoint oldest);

  // A deadlock is taken for one when no rank has asked for anything that waits
  // for as long as the check time: who has just come may ask for more. The
  // ranks never come at the same time, so the first report is too early for
  // that by what lies between them. Then the next look is due as soon as the
  // youngest is as old, however late the next report.
  bool LookDue(TimePoint now) const { return next_look_ && now >= *next_look_; }
  // After each look, also that of a report. `youngest`: when a rank last asked
  // for something that waits.
  void Looked(TimePoint now, TimePoint youngest);
  // A rank has asked for something that may have to wait.
  void Asked(TimePoint now) {
    if (looked_ && !next_look_) next_look_ = now + check_time_;
  }

  // Nothing waits any more.
  void Reset();

  // Whom to ask, and about what, before a report. Not all of a large job.
  ActivityReplies MakeQuery(const std::vector<StalledTensor>& stalled) const;

  // The text of a report.
  std::string Report(const std::vector<StalledTensor>& stalled,
                     const ActivityReplies& answers, TimePoint now) const;

  // The error that ends `tensor`, if it has waited beyond the shutdown time.
  Status Verdict(const StalledTensor& tensor, const ActivityReplies& answers,
                 TimePoint now) const;

  // The error for a job in which every rank waits for something and no tensor
  // can ever be ready, because the ranks wait for different names; OK when
  // some rank waits for nothing and may still bring what is missing.
  Status Deadlock(const std::vector<StalledTensor>& stalled,
                  const ActivityReplies& answers) const;

 private:
  std::vector<int32_t> Missing(const StalledTensor& tensor) const;
  // "asked for by rank 0, missing ranks 1-2"
  std::string WhoseText(const StalledTensor& tensor) const;
  // "\n  Rank 2 is in no collective ...", for each of `ranks` that was asked.
  std::string DoingText(const std::vector<int32_t>& ranks,
                        const ActivityReplies& answers) const;
  // A sentence on the cause, as far as the replies tell it; or nothing.
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
