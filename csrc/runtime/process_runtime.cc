#include "csrc/runtime/process_runtime.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <utility>
#include <vector>

#include "csrc/runtime/diagnostics/request_signal.h"

namespace keras_ring {
namespace {

struct Slot {
  SetNumbers numbers;
  Mutex mutex;
  std::shared_ptr<ProcessSets> sets KR_GUARDED_BY(mutex);
  // In place of `sets`, in a process that a rank has started.
  std::shared_ptr<const ParentRank> parent KR_GUARDED_BY(mutex);
  // True if `sets` is a fork's copy of its parent's: without threads and
  // without the memory that the ranks share. The topology can still be read.
  std::atomic<bool> forked{false};
  // How many forks this process is away from the first one.
  std::atomic<int> generation{0};
};

// Leaked: joining threads while static objects die is how processes hang at
// exit.
Slot& TheSlot() {
  static Slot* slot = new Slot;
  return *slot;
}

// Around a fork no other thread has the lock. One of these functions takes it
// and another one releases it.
void BeforeFork() KR_NO_THREAD_SAFETY_ANALYSIS { TheSlot().mutex.Lock(); }
void InParent() KR_NO_THREAD_SAFETY_ANALYSIS { TheSlot().mutex.Unlock(); }
void InChild() KR_NO_THREAD_SAFETY_ANALYSIS {
  TheSlot().forked = TheSlot().sets != nullptr;
  ++TheSlot().generation;
  TheSlot().mutex.Unlock();
}

Status HandleForks() {
  static const int handled = pthread_atfork(BeforeFork, InParent, InChild);
  if (handled == 0) return OkStatus();
  return ResourceExhaustedError("pthread_atfork: no memory");
}

Status CheckEmpty(const Slot& slot) KR_REQUIRES(slot.mutex) {
  if (slot.sets == nullptr && slot.parent == nullptr) return OkStatus();
  return FailedPreconditionError("this process is initialized already");
}

}  // namespace

Status InstallProcessSets(std::shared_ptr<ProcessSets> sets) {
  KR_RETURN_IF_ERROR(HandleForks());
  MutexLock lock(TheSlot().mutex);
  KR_RETURN_IF_ERROR(CheckEmpty(TheSlot()));
  TheSlot().sets = std::move(sets);
  return OkStatus();
}

void ReplaceProcessSets(std::shared_ptr<ProcessSets> sets) {
  MutexLock lock(TheSlot().mutex);
  if (TheSlot().sets != nullptr) TheSlot().sets.swap(sets);
}

Status InstallParentRank(const ParentRank& parent) {
  KR_RETURN_IF_ERROR(HandleForks());
  MutexLock lock(TheSlot().mutex);
  KR_RETURN_IF_ERROR(CheckEmpty(TheSlot()));
  TheSlot().parent = std::make_shared<const ParentRank>(parent);
  return OkStatus();
}

std::shared_ptr<const ParentRank> CurrentParentRank() {
  MutexLock lock(TheSlot().mutex);
  return TheSlot().parent;
}

std::shared_ptr<ProcessSets> CurrentProcessSets() {
  MutexLock lock(TheSlot().mutex);
  return TheSlot().sets;
}

Status CheckIsRank() {
  const std::string here =
      "this process (pid " + std::to_string(getpid()) + ")";
  const std::string why =
      ", and only that rank itself has connections with the other ranks; call "
      "it there";
  if (TheSlot().forked) {
    return FailedPreconditionError(
        here + " was forked from rank " +
        std::to_string(ProcessRuntime()->topology().rank) + why);
  }
  if (const auto parent = CurrentParentRank()) {
    return FailedPreconditionError(
        here + " was started by rank " + std::to_string(parent->topology.rank) +
        " (pid " + std::to_string(parent->pid) + ")" + why +
        ". If this is to be a job of its own, start it with KERAS_RING_SIZE=1 "
        "in its environment, or by keras-ring run");
  }
  return OkStatus();
}

std::shared_ptr<Runtime> ProcessRuntime() {
  const std::shared_ptr<ProcessSets> sets = CurrentProcessSets();
  return sets ? sets->job() : nullptr;
}

Result<std::shared_ptr<Runtime>> ProcessRuntimeFor(int64_t process_set,
                                                   const std::string& name) {
  const Status here = CheckIsRank();
  if (!here.ok()) return here.WithContext("collective '" + name + "'");
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
  TheSlot().parent = nullptr;
  std::shared_ptr<ProcessSets> sets = std::exchange(TheSlot().sets, nullptr);
  if (!TheSlot().forked.exchange(false)) return sets;
  // Never destroyed: it would wait for threads that do not exist here, and use
  // the parent's resources.
  static auto* of_parents = new std::vector<std::shared_ptr<ProcessSets>>;
  of_parents->push_back(std::move(sets));
  return nullptr;
}

void AnswerRequestSignals() {
  AnswerSignal(SIGUSR1, "kr-dump", [] {
    if (auto sets = CurrentProcessSets()) sets->WriteFlightLogs("SIGUSR1");
  });
  AnswerSignal(SIGUSR2, "kr-dump-trace", [] {
    if (auto runtime = ProcessRuntime()) runtime->RecordBriefTimeline();
  });
}

Result<std::shared_ptr<Runtime>> RuntimeLookup::For(const std::string& name) {
  // Without the lock, which a thread of the parent's may have held.
  if (TheSlot().forked) return ProcessRuntimeFor(process_set_, name);
  MutexLock lock(mutex_);
  const int generation = TheSlot().generation;
  if (auto runtime = runtime_.lock();
      runtime && !runtime->retired() && generation == generation_) {
    return runtime;
  }
  KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime,
                      ProcessRuntimeFor(process_set_, name));
  runtime_ = runtime;
  generation_ = generation;
  return runtime;
}

}  // namespace keras_ring
