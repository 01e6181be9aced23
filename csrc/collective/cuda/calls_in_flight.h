// CallsInFlight: the calls that a device has been given and has not done.
#ifndef KERAS_RING_COLLECTIVE_CUDA_CALLS_IN_FLIGHT_H_
#define KERAS_RING_COLLECTIVE_CUDA_CALLS_IN_FLIGHT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/collective/cuda/call_memory.h"
#include "csrc/cuda/finalizer.h"
#include "csrc/cuda/gpu.h"

namespace keras_ring {

// Calls are begun and ended by one thread. Abort: any thread.
class CallsInFlight {
 public:
  using Done = cuda::Finalizer::Done;

  // `grace`: see cuda::Finalizer.
  explicit CallsInFlight(Duration grace) : finalizer_(grace) {}

  // To be called once, with the device current.
  Status Open(const std::shared_ptr<cuda::Gpu>& gpu);
  // Begins a call, and returns its memory. Waits while too many are in flight.
  CallMemory& Begin() KR_EXCLUDES(mutex_);
  // All work of the call was given to `stream`. `done` is called when the
  // device has done it; with an error at once, if the device takes no event.
  void End(cuda::Stream stream, Done done) KR_EXCLUDES(mutex_);
  // Calls end with `cause`: see cuda::Finalizer.
  void Abort(const Status& cause) { finalizer_.Abort(cause); }
  // Ends all calls. Returns whether the device has done all of them; if not,
  // what they use must be kept.
  bool Stop();

 private:
  // More than the executor has in flight.
  static constexpr size_t kMaxCalls = 32;

  void Release(size_t slot) KR_EXCLUDES(mutex_);

  std::vector<std::unique_ptr<CallMemory>> memories_;
  uint64_t calls_ = 0;  // that were begun
  Mutex mutex_;
  CondVar released_;
  std::array<bool, kMaxCalls> in_flight_ KR_GUARDED_BY(mutex_){};
  cuda::Finalizer finalizer_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_CALLS_IN_FLIGHT_H_
