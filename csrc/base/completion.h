// Completion: the callback that ends a tensor entry, called exactly once.
#ifndef KERAS_RING_BASE_COMPLETION_H_
#define KERAS_RING_BASE_COMPLETION_H_

#include <functional>
#include <utility>

#include "csrc/base/status.h"

namespace keras_ring {

// TensorFlow waits for ever for an op whose `done` never fires and crashes on
// one that fires twice. A Completion can do neither: firing empties it, and
// one that is dropped unfired reports kInternal.
class Completion {
 public:
  // A callable of at most two pointers needs no allocation.
  using Callback = std::function<void(const Status&)>;

  Completion() = default;
  explicit Completion(Callback callback) : callback_(std::move(callback)) {}
  // A moved-from object is empty.
  Completion(Completion&& other) noexcept
      : callback_(std::exchange(other.callback_, nullptr)) {}
  Completion& operator=(Completion&& other) noexcept {
    if (this != &other) {
      DropUnfired();
      callback_ = std::exchange(other.callback_, nullptr);
    }
    return *this;
  }
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion() { DropUnfired(); }

  bool armed() const { return callback_ != nullptr; }

  // Must be called with no lock of ours held: the callback may run user code.
  void Fire(const Status& status) {
    const Callback callback = std::exchange(callback_, nullptr);
    KR_CHECK(callback != nullptr);
    callback(status);
  }

  // Gives up the duty to fire, for a caller that reports the error itself.
  void Disarm() { callback_ = nullptr; }

 private:
  void DropUnfired() {
    if (armed()) Fire(InternalError("the entry was dropped unfinished"));
  }

  Callback callback_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_COMPLETION_H_
