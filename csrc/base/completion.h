// Completion: the callback that ends a tensor entry, called exactly once.
#ifndef KERAS_RING_BASE_COMPLETION_H_
#define KERAS_RING_BASE_COMPLETION_H_

#include <functional>
#include <memory>
#include <utility>

#include "csrc/base/status.h"

namespace keras_ring {

// TensorFlow waits for ever for an op whose `done` never fires and crashes on
// one that fires twice. A Completion can do neither: firing empties it, and
// one that is dropped unfired reports kInternal.
class Completion {
 public:
  // The callback. An object that is there anyway saves the memory of a
  // closure.
  class Target {
   public:
    virtual ~Target() = default;
    virtual void Complete(const Status& status) = 0;
  };
  using Callback = std::function<void(const Status&)>;

  Completion() = default;
  explicit Completion(std::shared_ptr<Target> target)
      : target_(std::move(target)) {}
  explicit Completion(Callback callback)
      : target_(std::make_shared<CallbackTarget>(std::move(callback))) {}
  Completion(Completion&& other) noexcept = default;
  Completion& operator=(Completion&& other) noexcept {
    if (this != &other) {
      DropUnfired();
      target_ = std::move(other.target_);
    }
    return *this;
  }
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion() { DropUnfired(); }

  bool armed() const { return target_ != nullptr; }

  // Must be called with no lock of ours held: the callback may run user code.
  void Fire(const Status& status) {
    const std::shared_ptr<Target> target = std::move(target_);
    KR_CHECK(target != nullptr);
    target->Complete(status);
  }

  // Gives up the duty to fire, for a caller that reports the error itself.
  void Disarm() { target_ = nullptr; }

 private:
  class CallbackTarget final : public Target {
   public:
    explicit CallbackTarget(Callback callback)
        : callback_(std::move(callback)) {}
    void Complete(const Status& status) override { callback_(status); }

   private:
    const Callback callback_;
  };

  void DropUnfired() {
    if (armed()) Fire(InternalError("the entry was dropped unfinished"));
  }

  std::shared_ptr<Target> target_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_COMPLETION_H_
