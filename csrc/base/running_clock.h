// RunningClock: time as far as this process has run, for limits on others.
//
// A process may be stopped together with all that it waits for: by a scheduler
// that suspends its job, the freezer of its containers, or the host that its
// virtual machine is moved to. When it goes on, its own pause looks like the
// silence of the others. So that time does not count.
#ifndef KERAS_RING_BASE_RUNNING_CLOCK_H_
#define KERAS_RING_BASE_RUNNING_CLOCK_H_

#include <algorithm>
#include <optional>

#include "csrc/base/clock.h"

namespace keras_ring {

// Not thread-safe: for one thread, which calls Look, and whoever it calls.
class RunningClock final : public Clock {
 public:
  // The gap of waits that look many times a second.
  static constexpr Duration kWaitGap = std::chrono::seconds(1);

  // `gap`: the longest time between two calls of Look, as long as the thread
  // runs. What goes beyond it is lost. `clock` must outlive the object.
  RunningClock(const Clock& clock, Duration gap) : clock_(clock), gap_(gap) {}

  // At most the gap beyond the last look: a thread may be stopped between that
  // and this.
  TimePoint Now() const override {
    const TimePoint now = clock_.Now();
    return (looked_ ? std::min(now, *looked_ + gap_) : now) - lost_;
  }

  // Returns how much time was lost since the last call of this or Skip, mostly
  // none; before the first one nothing is.
  Duration Look() {
    const TimePoint now = clock_.Now();
    const Duration lost =
        std::max(Duration::zero(), now - looked_.value_or(now) - gap_);
    looked_ = now;
    lost_ += lost;
    return lost;
  }
  // The thread had nothing to look after, and may have slept for any time: none
  // is lost. Returns what Now does.
  TimePoint Skip() {
    looked_ = clock_.Now();
    return *looked_ - lost_;
  }

  // What the clock that counts all time shows when this one shows `at`, if no
  // more is lost.
  TimePoint Outside(TimePoint at) const { return at + lost_; }

 private:
  const Clock& clock_;
  const Duration gap_;
  std::optional<TimePoint> looked_;
  Duration lost_ = Duration::zero();
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_RUNNING_CLOCK_H_
