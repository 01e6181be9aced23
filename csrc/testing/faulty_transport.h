// FaultyTransport: a transport that goes wrong at a chosen point.
#ifndef KERAS_RING_TESTING_FAULTY_TRANSPORT_H_
#define KERAS_RING_TESTING_FAULTY_TRANSPORT_H_

#include <chrono>
#include <cstddef>
#include <memory>

#include "csrc/base/mutex.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

struct Fault {
  enum class Kind {
    kNone,
    kFail,     // Run is aborted; what peers see is up to the transport
    kDelay,    // Run begins later by `delay`, unless aborted
    kVanish,   // as a killed process: the connections close
    kFlipTag,  // Run announces another collective
  };
  Kind kind = Kind::kNone;
  // The Run that goes wrong, counted from 0.
  int run = 0;
  // kFail and kVanish: after so many segments of that Run were received.
  size_t after_receives = 0;
  std::chrono::milliseconds delay{0};
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, const Fault& fault);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status Run(SendReceivePlan& plan) override;
  void Abort(const Status& cause) override KR_EXCLUDES(mutex_);

 private:
  // Aborts the Run after the receives of `fault_`.
  Status RunUntilFault(SendReceivePlan& plan);
  void AwaitDelay() KR_EXCLUDES(mutex_);
  std::shared_ptr<Transport> inner() KR_EXCLUDES(mutex_);

  const int rank_;
  const int size_;
  const Fault fault_;
  int runs_ = 0;

  Mutex mutex_;
  CondVar changed_;
  bool aborted_ KR_GUARDED_BY(mutex_) = false;
  // Shared: an Abort may be under way on another thread when it vanishes.
  std::shared_ptr<Transport> inner_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_FAULTY_TRANSPORT_H_
