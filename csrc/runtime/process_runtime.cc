#include "csrc/runtime/process_runtime.h"

#include <utility>

#include "csrc/runtime/dump_signal.h"

namespace keras_ring {
namespace {

struct Slot {
  SetNumbers numbers;
  Mutex mutex;
  std::shared_ptr<ProcessSets> sets KR_GUARDED_BY(mutex);
};

// Leaked: joining threads while static objects die is how processes hang at
// exit.
Slot& TheSlot() {
  static Slot* slot = new Slot;
  return *slot;
}

}  // namespace

Status InstallProcessSets(std::shared_ptr<ProcessSets> sets) {
  MutexLock lock(TheSlot().mutex);
  if (TheSlot().sets != nullptr) {
    return FailedPreconditionError("this process is initialized already");
  }
  TheSlot().sets = std::move(sets);
  return OkStatus();
}

std::shared_ptr<ProcessSets> CurrentProcessSets() {
  MutexLock lock(TheSlot().mutex);
  return TheSlot().sets;
}

std::shared_ptr<Runtime> ProcessRuntime() {
  const std::shared_ptr<ProcessSets> sets = CurrentProcessSets();
  return sets ? sets->job() : nullptr;
}

Result<std::shared_ptr<Runtime>> ProcessRuntimeFor(int64_t process_set,
                                                   const std::string& name) {
  const std::shared_ptr<ProcessSets> sets = CurrentProcessSets();
  if (sets == nullptr) {
    return FailedPreconditionError(
        "collective '" + name +
        "': keras_ring is not initialized in this process; call "
        "keras_ring.init() first (and not after shutdown())");
  }
  Result<std::shared_ptr<Runtime>> runtime = sets->RuntimeOf(process_set);
  if (runtime.ok()) return runtime;
  return runtime.status().WithContext("collective '" + name + "'");
}

SetNumbers& ProcessSetNumbers() { return TheSlot().numbers; }

std::shared_ptr<ProcessSets> TakeProcessSets() {
  MutexLock lock(TheSlot().mutex);
  return std::exchange(TheSlot().sets, nullptr);
}

void AnswerDumpSignal() {
  CallOnDumpSignal([] {
    if (auto sets = CurrentProcessSets()) sets->WriteFlightLogs("SIGUSR1");
  });
}

Result<std::shared_ptr<Runtime>> RuntimeLookup::For(const std::string& name) {
  MutexLock lock(mutex_);
  if (auto runtime = runtime_.lock(); runtime && !runtime->retired()) {
    return runtime;
  }
  KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime,
                      ProcessRuntimeFor(process_set_, name));
  runtime_ = runtime;
  return runtime;
}

}  // namespace keras_ring
