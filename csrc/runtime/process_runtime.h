// The process's job and its process sets: the one mutable global, because
// TensorFlow makes kernels itself and gives them nothing of ours.
#ifndef KERAS_RING_RUNTIME_PROCESS_RUNTIME_H_
#define KERAS_RING_RUNTIME_PROCESS_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <string>

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/runtime/process_sets.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// Puts `sets` in the slot. kFailedPrecondition if it is taken.
//
// The child of a fork has its parent's in the slot, and may ask it where the
// rank stands, and nothing else: collectives fail there, and taking it out of
// the slot ends nothing. The parent does not notice the child.
Status InstallProcessSets(std::shared_ptr<ProcessSets> sets);

// The process sets of the job; null before init and after shutdown.
std::shared_ptr<ProcessSets> CurrentProcessSets();
// The runtime of its job, or null.
std::shared_ptr<Runtime> ProcessRuntime();

// The rank by which this process was started.
struct ParentRank {
  Topology topology;
  int64_t pid = 0;
};

// Notes that this process was started by a rank, as a program of its own (a
// worker that `multiprocessing` spawns). Like the child of a fork it may ask
// where that rank stands, and nothing else. kFailedPrecondition if the slot is
// taken.
Status InstallParentRank(const ParentRank& parent);
// Null where InstallParentRank was not called, or TakeProcessSets since.
std::shared_ptr<const ParentRank> CurrentParentRank();

// kFailedPrecondition in a process that a rank has forked or started.
Status CheckIsRank();

// The runtime for a collective of this name on a process set. The error says
// that there is no job, or that it is the parent's (kFailedPrecondition), no
// such set (the same), or that this rank is not a member (kInvalidArgument).
Result<std::shared_ptr<Runtime>> ProcessRuntimeFor(int64_t process_set,
                                                   const std::string& name);

// The numbers of all process sets that this process ever has.
SetNumbers& ProcessSetNumbers();

// Empties the slot and returns what was in it; null in a process that a rank
// has forked or started.
std::shared_ptr<ProcessSets> TakeProcessSets();

// From now on SIGUSR1 makes what is in the slot write its flight logs, and
// SIGUSR2 record a timeline of some seconds; see AnswerSignal.
void AnswerRequestSignals();

// The way of one caller to the runtime of one set: goes there once, and again
// when that runtime is over. It does not keep it alive.
class RuntimeLookup {
 public:
  explicit RuntimeLookup(int64_t process_set) : process_set_(process_set) {}

  // As ProcessRuntimeFor.
  Result<std::shared_ptr<Runtime>> For(const std::string& name)
      KR_EXCLUDES(mutex_);

 private:
  const int64_t process_set_;
  Mutex mutex_;
  std::weak_ptr<Runtime> runtime_ KR_GUARDED_BY(mutex_);
  int generation_ KR_GUARDED_BY(mutex_) = 0;  // of the process that went there
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PROCESS_RUNTIME_H_
