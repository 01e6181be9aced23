#include "csrc/runtime/process_runtime.h"

#include <utility>

#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

struct Slot {
  Mutex mutex;
  std::shared_ptr<Runtime> runtime KR_GUARDED_BY(mutex);
};

// Leaked: joining threads while static objects die is how processes hang at
// exit.
Slot& TheSlot() {
  static Slot* slot = new Slot;
  return *slot;
}

}  // namespace

Status InstallProcessRuntime(std::shared_ptr<Runtime> runtime) {
  MutexLock lock(TheSlot().mutex);
  if (TheSlot().runtime != nullptr) {
    return FailedPreconditionError("this process is initialized already");
  }
  TheSlot().runtime = std::move(runtime);
  return OkStatus();
}

std::shared_ptr<Runtime> ProcessRuntime() {
  MutexLock lock(TheSlot().mutex);
  return TheSlot().runtime;
}

Result<std::shared_ptr<Runtime>> ProcessRuntimeFor(const std::string& name) {
  std::shared_ptr<Runtime> runtime = ProcessRuntime();
  if (runtime == nullptr) {
    return FailedPreconditionError(
        "collective '" + name +
        "': keras_ring is not initialized in this process; call "
        "keras_ring.init() first (and not after shutdown())");
  }
  return runtime;
}

std::shared_ptr<Runtime> TakeProcessRuntime() {
  MutexLock lock(TheSlot().mutex);
  return std::exchange(TheSlot().runtime, nullptr);
}

}  // namespace keras_ring
