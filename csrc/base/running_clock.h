// RunningClock: counts only the time in which this process runs, for limits on
// other processes.
//
// A process may be stopped together with all processes that it waits for: by a
// scheduler that suspends its job, by the freezer of its containers, or while
// its virtual machine is moved to another host. When it resumes, its own pause
// looks like silence of the others. So this clock leaves that time out.
#ifndef KERAS_RING_BASE_RUNNING_CLOCK_H_
#define KERAS_RING_BASE_RUNNING_CLOCK_H_

#include <algorithm>
#include <optional>

#include "csrc/base/clock.h"

namespace keras_ring {

// Not thread-safe: for the one thread that calls Look, and the code it calls.
class RunningClock final : public Clock {
 public:
  // The gap for waits that call Look many times a second.
  static constexpr Duration kWaitGap = std::chrono::seconds(1);

  // `gap`: the longest time between two calls of Look while the thread runs.
  // Any time beyond it counts as lost. `clock` must outlive the object.
  RunningClock(const Clock& clock, Duration gap) : clock_(clock), gap_(gap) {}

  // Returns at most the time of the last Look plus the gap: the thread may be
  // stopped between that call and this one.
  TimePoint Now() const override {
    const TimePoint now = clock_.Now();
    return (looked_ ? std::min(now, *looked_ + gap_) : now) - lost_;
  }

  // Returns how much time was lost since the last call of Look or Skip, mostly
  // none. The first call loses none.
  Duration Look() {
    const TimePoint now = clock_.Now();
    const Duration lost =
        std::max(Duration::zero(), now - looked_.value_or(now) - gap_);
    looked_ = now;
    lost_ += lost;
    return lost;
  }
  // The thread had nothing to watch and may have slept for any time: none of it
  // is lost. Returns what Now does.
  TimePoint Skip() {
    looked_ = clock_.Now();
    return *looked_ - lost_;
  }

  // Converts `at`, a time of this clock, to the underlying clock, provided that
  // no more time is lost.
  TimePoint Outside(TimePoint at) const { return at + lost_; }

 private:
  const Clock& clock_;
  const Duration gap_;
  std::optional<TimePoint> looked_;
  Duration lost_ = Duration::zero();
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_RUNNING_CLOCK_H_
