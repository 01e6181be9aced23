// Deadline: an absolute limit for a wait, taken by everything that can block.
//
// Absolute, because a relative timeout handed through several calls starts
// anew in each of them.
#ifndef KERAS_RING_BASE_DEADLINE_H_
#define KERAS_RING_BASE_DEADLINE_H_

#include <algorithm>
#include <chrono>

#include "csrc/base/clock.h"

namespace keras_ring {

class Deadline {
 public:
  static Deadline After(Duration duration) {
    return Deadline(std::chrono::steady_clock::now() + duration);
  }
  static Deadline AfterSeconds(double seconds) {
    return After(std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(seconds)));
  }
  explicit Deadline(TimePoint at) : at_(at) {}

  TimePoint at() const { return at_; }
  bool expired() const { return std::chrono::steady_clock::now() >= at_; }

  // Milliseconds left for poll(2): rounded up, so that a wait never spins in
  // its last millisecond; 0 when expired.
  int PollTimeoutMs() const {
    auto left = at_ - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return 0;
    auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    return static_cast<int>(std::min<long long>(ms, 1 << 30));
  }

 private:
  TimePoint at_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_DEADLINE_H_
