// ThreadChecker: checks that an object is used by the one thread that owns it.
//
//   class Controller {
//     void Submit(...) { KR_DCHECK(thread_.IsOwner()); ... }
//     ThreadChecker thread_;
//   };
//
// The checks are compiled into debug and sanitizer builds; the object is there
// in all of them, so that its owner has the same layout everywhere.
#ifndef KERAS_RING_BASE_THREAD_CHECKER_H_
#define KERAS_RING_BASE_THREAD_CHECKER_H_

#include <atomic>
#include <thread>

#include "csrc/base/status.h"

namespace keras_ring {

class ThreadChecker {
 public:
  // Returns whether the caller is the owner. The first caller becomes it.
  bool IsOwner() const {
    const std::thread::id caller = std::this_thread::get_id();
    std::thread::id owner;
    return owner_.compare_exchange_strong(owner, caller) || owner == caller;
  }

  // The next thread that asks becomes the owner: the object is handed over.
  void Detach() { owner_.store(std::thread::id()); }

 private:
  mutable std::atomic<std::thread::id> owner_{std::thread::id()};
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_THREAD_CHECKER_H_
