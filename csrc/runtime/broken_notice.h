// BrokenNotice: tells one listener, once, why the job has broken.
#ifndef KERAS_RING_RUNTIME_BROKEN_NOTICE_H_
#define KERAS_RING_RUNTIME_BROKEN_NOTICE_H_

#include <functional>

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"

namespace keras_ring {

class BrokenNotice {
 public:
  using Listener = std::function<void(const Status& cause)>;

  // `listener` is called by the thread that calls Tell; at once if the job has
  // broken already. Null removes the listener. Any thread.
  void SetListener(Listener listener) KR_EXCLUDES(mutex_) {
    Status told;
    {
      MutexLock lock(mutex_);
      listener_ = listener;
      told = told_;
    }
    if (listener && !told.ok()) listener(told);
  }

  // Only the first cause counts.
  void Tell(const Status& cause) KR_EXCLUDES(mutex_) {
    Listener listener;
    {
      MutexLock lock(mutex_);
      if (!told_.ok()) return;
      told_ = cause;
      listener = listener_;
    }
    if (listener) listener(cause);
  }

 private:
  Mutex mutex_;
  Listener listener_ KR_GUARDED_BY(mutex_);
  Status told_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_BROKEN_NOTICE_H_
