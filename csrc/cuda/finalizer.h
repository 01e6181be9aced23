// Finalizer: calls back when a device has done what it was given.
#ifndef KERAS_RING_CUDA_FINALIZER_H_
#define KERAS_RING_CUDA_FINALIZER_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/cuda/gpu.h"

namespace keras_ring::cuda {

// Callbacks of the driver's own are not used: they stall the stream.
class Finalizer {
 public:
  using Done = std::function<void(const Status&)>;

  // Longer than work takes that can still be done, and short enough for the
  // error of a lost rank to be there within a second.
  static constexpr Duration kGrace = std::chrono::milliseconds(500);

  // `grace`: see Abort.
  explicit Finalizer(Duration grace = kGrace) : grace_(grace) {}
  ~Finalizer();

  Status Start();
  // Calls `done` once `event` is reached, after all that were added before.
  // `event` must have been recorded.
  void Add(std::shared_ptr<CudaEvent> event, Done done) KR_EXCLUDES(mutex_);
  // What was added ends with `cause`, once its event is reached, but not later
  // than after the grace: an event that waits for a process that is gone may
  // never be reached. Any thread; the first cause is kept.
  void Abort(const Status& cause) KR_EXCLUDES(mutex_);
  // Ends what is left, as after an abort, and joins. Idempotent.
  void Stop() KR_EXCLUDES(mutex_);
  // Returns whether something has ended before its event was reached. To be
  // called after Stop.
  bool gave_up() const { return gave_up_; }

 private:
  struct Pending {
    std::shared_ptr<CudaEvent> event;
    Done done;
  };
  void Run() KR_EXCLUDES(mutex_);
  // Waits for the event, and returns how what waits for it ends.
  Status Outcome(const CudaEvent& event) KR_EXCLUDES(mutex_);

  const Duration grace_;
  bool gave_up_ = false;  // of the thread
  Mutex mutex_;
  CondVar changed_;
  std::deque<Pending> pending_ KR_GUARDED_BY(mutex_);
  Status aborted_ KR_GUARDED_BY(mutex_);
  TimePoint aborted_at_ KR_GUARDED_BY(mutex_){};
  bool stopping_ KR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_FINALIZER_H_
