// LastReady: the rank that the others waited for, and for how long.
#ifndef KERAS_RING_CONTROL_LAST_READY_H_
#define KERAS_RING_CONTROL_LAST_READY_H_

#include <chrono>
#include <cstdint>

#include "csrc/base/clock.h"

namespace keras_ring {

// For one or several tensors: if they differ, the rank that was latest with any
// of them. Each node of the tree measures by its own clock and adds what was
// measured below. So a message needs a few bytes for all of its tensors,
// however many ranks are below, and no clocks are compared. Message latency
// counts as lateness of the ranks below.
struct LastReady {
  static constexpr int32_t kNone = -1;
  int32_t rank = kNone;  // all were ready at once
  // The time from the first rank that was ready to this one. In whole
  // microseconds, as on the wire: the same everywhere.
  std::chrono::microseconds late{0};

  static LastReady Of(int32_t rank, Duration late) {
    LastReady last;
    last.late = std::chrono::floor<std::chrono::microseconds>(late);
    if (last.late.count() > 0) last.rank = rank;
    return last;
  }

  void Merge(const LastReady& other) {
    if (other.late > late) *this = other;
  }
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_LAST_READY_H_
