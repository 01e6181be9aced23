// StickyStatus: the first failure of an object, kept for ever.
#ifndef KERAS_RING_BASE_STICKY_STATUS_H_
#define KERAS_RING_BASE_STICKY_STATUS_H_

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"

namespace keras_ring {

// Thread-safe.
class StickyStatus {
 public:
  Status Get() const {
    MutexLock lock(mutex_);
    return status_;
  }
  // Keeps `status` if it is the first failure. Returns whether it did.
  bool Set(const Status& status) {
    MutexLock lock(mutex_);
    if (!status_.ok() || status.ok()) return false;
    status_ = status;
    return true;
  }
  // Calls f(), a fallible function, unless there was a failure before, and
  // keeps its status. A failure that was set while f ran takes precedence: f
  // failed because of it, or succeeded where others have not.
  template <typename Function>
  Status Run(Function f) {
    Status status = Get();
    if (!status.ok()) return status;
    Set(f());
    return Get();
  }

 private:
  mutable Mutex mutex_;
  Status status_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_STICKY_STATUS_H_
