// SetNumbers: the numbers that no process set has had in this process yet.
#ifndef KERAS_RING_RUNTIME_SET_NUMBERS_H_
#define KERAS_RING_RUNTIME_SET_NUMBERS_H_

#include <algorithm>
#include <cstdint>

#include "csrc/base/mutex.h"

namespace keras_ring {

// A traced function keeps the number of its set for as long as the process
// lives, across the end of the job and the start of the next. So no two sets of
// a process ever have the same number, whichever jobs they belong to. Ranks
// that have seen different numbers of sets take the highest of their next free
// numbers. Thread-safe.
class SetNumbers {
 public:
  // No set has had this number or a higher one.
  uint32_t next() const KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return next_;
  }
  // A set has this number now.
  void Take(uint32_t number) KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    next_ = std::max(next_, number + 1);
  }

 private:
  mutable Mutex mutex_;
  uint32_t next_ KR_GUARDED_BY(mutex_) = 1;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_SET_NUMBERS_H_
