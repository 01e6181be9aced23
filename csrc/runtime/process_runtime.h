// The process's job and its process sets: the one mutable global, because
// TensorFlow creates kernels itself and passes them none of our objects.
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
// The child of a fork has its parent's process sets in the slot, and may ask
// them for the parent's topology, and nothing else: collectives fail there, and
// taking them out of the slot ends nothing. The parent does not notice the
// child.
Status InstallProcessSets(std::shared_ptr<ProcessSets> sets);

// Puts `sets` in the slot, in place of those of the generation before; or not,
// if the slot is empty.
void ReplaceProcessSets(std::shared_ptr<ProcessSets> sets);

// Returns the process sets of the job; null before init and after shutdown.
std::shared_ptr<ProcessSets> CurrentProcessSets();
// Returns the runtime of its job, or null.
std::shared_ptr<Runtime> ProcessRuntime();

// The rank that started this process.
struct ParentRank {
  Topology topology;
  int64_t pid = 0;
};

// Notes that this process was started by a rank, as a program of its own (a
// worker that `multiprocessing` spawns). Like the child of a fork it may ask
// for that rank's topology, and nothing else. kFailedPrecondition if the slot
// is taken.
Status InstallParentRank(const ParentRank& parent);
// Returns null if InstallParentRank was not called, or TakeProcessSets since.
std::shared_ptr<const ParentRank> CurrentParentRank();

// Returns kFailedPrecondition in a process that a rank has forked or started.
Status CheckIsRank();

// Returns the runtime for a collective of this name on a process set. The error
// says that there is no job, or that it is the parent's (kFailedPrecondition),
// that there is no such set (the same), or that this rank is not a member
// (kInvalidArgument).
Result<std::shared_ptr<Runtime>> ProcessRuntimeFor(int64_t process_set,
                                                   const std::string& name);

// The numbers of all process sets that this process ever has.
SetNumbers& ProcessSetNumbers();

// Empties the slot and returns what was in it; null in a process that a rank
// has forked or started.
std::shared_ptr<ProcessSets> TakeProcessSets();

// From now on SIGUSR1 makes the process sets in the slot write their flight
// logs, and SIGUSR2 makes them record a timeline of some seconds; see
// AnswerSignal.
void AnswerRequestSignals();

// One caller's access to the runtime of one set: looks it up once, and again
// when that runtime is over. Does not keep the runtime alive.
class RuntimeLookup {
 public:
  explicit RuntimeLookup(int64_t process_set) : process_set_(process_set) {}

  // Like ProcessRuntimeFor.
  Result<std::shared_ptr<Runtime>> For(const std::string& name)
      KR_EXCLUDES(mutex_);

 private:
  const int64_t process_set_;
  Mutex mutex_;
  std::weak_ptr<Runtime> runtime_ KR_GUARDED_BY(mutex_);
  // of the process that looked it up
  int generation_ KR_GUARDED_BY(mutex_) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PROCESS_RUNTIME_H_
