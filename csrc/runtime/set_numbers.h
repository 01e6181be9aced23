// SetNumbers: the numbers that process sets have not had in this process.
#ifndef KERAS_RING_RUNTIME_SET_NUMBERS_H_
#define KERAS_RING_RUNTIME_SET_NUMBERS_H_

#include <algorithm>
#include <cstdint>

#include "csrc/base/mutex.h"

namespace keras_ring {

// A function that was traced keeps the number of its set for as long as the
// process lives, over the end of the job and the start of the next. So no two
// sets of a process ever have the same number, whatever jobs they are of. Ranks
// that have seen different numbers of sets take the highest of what each has
// free. Thread-safe.
class SetNumbers {
 public:
  // No set has had this number or one above it.
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
