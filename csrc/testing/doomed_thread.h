// DoomedThread: holds a liveness futex as a rank does, and dies with it.
#ifndef KERAS_RING_TESTING_DOOMED_THREAD_H_
#define KERAS_RING_TESTING_DOOMED_THREAD_H_

#include <future>
#include <new>
#include <thread>

#include "csrc/base/status.h"
#include "csrc/comm/host/liveness.h"

namespace keras_ring {

// To the kernel, the end of a thread that holds a futex is that of its process.
class DoomedThread {
 public:
  // Returns when the futex is held.
  explicit DoomedThread(LivenessFutex& futex)
      : thread_([this, &futex] {
          // Never destroyed: it would leave.
          const auto* hold = new (memory_) LivenessHold(futex);
          KR_CHECK(hold->status().ok());
          held_.set_value();
          die_.get_future().wait();
        }) {
    held_.get_future().wait();
  }
  ~DoomedThread() {
    if (thread_.joinable()) Die();
  }

  void Die() {
    die_.set_value();
    thread_.join();
  }

 private:
  alignas(LivenessHold) char memory_[sizeof(LivenessHold)];
  std::promise<void> held_, die_;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_DOOMED_THREAD_H_
