// IdleLimit: how long a collective may make no progress before it fails.
#ifndef KERAS_RING_BASE_IDLE_LIMIT_H_
#define KERAS_RING_BASE_IDLE_LIMIT_H_

#include <atomic>

#include "csrc/base/clock.h"

namespace keras_ring {

// Shared by those that wait and those that set the limit. A rank whose data
// thread makes no progress is slow, not lost, as long as its control thread
// answers, so mostly there is no limit; a rank that leaves sets one.
// Thread-safe.
class IdleLimit {
 public:
  static constexpr Duration kNever = Duration::max();

  explicit IdleLimit(Duration limit) : ticks_(limit.count()) {}

  Duration get() const { return Duration(ticks_.load()); }
  void Lower(Duration limit) {
    if (limit < get()) ticks_ = limit.count();
  }

 private:
  std::atomic<Duration::rep> ticks_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_IDLE_LIMIT_H_
