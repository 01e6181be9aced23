// LastReady: the rank that the others have waited for, and for how long.
#ifndef KERAS_RING_CONTROL_LAST_READY_H_
#define KERAS_RING_CONTROL_LAST_READY_H_

#include <chrono>
#include <cstdint>

#include "csrc/base/clock.h"

namespace keras_ring {

// Of one or several tensors: where these differ, the one that a rank was latest
// with. Each node of the tree measures by its own clock and adds what was
// measured below, so a message says it of all its tensors in a few bytes,
// however many ranks are below, and no clocks are compared. The time that
// messages need counts as lateness of those below.
struct LastReady {
  static constexpr int32_t kNone = -1;
  int32_t rank = kNone;  // all were ready at once
  // From the first rank that was ready to this one. As on the wire, in whole
  // microseconds: the same everywhere.
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
