#include "csrc/runtime/process_arena.h"

#include <pthread.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

struct Slot {
  SystemClock clock;
  Mutex mutex;
  std::shared_ptr<Arena> arena KR_GUARDED_BY(mutex);
};

// Leaked, as the tensors in it may be.
Slot& TheSlot() {
  static Slot* slot = new Slot;
  return *slot;
}

// Addresses, not memory: enough that pieces of free memory which nothing fits
// into never matter.
size_t ArenaBytes() {
  const size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                        static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return 4 * memory;
}

// Where every page is promised beforehand, malloc can say that there is none
// left. Pages of a memfd are not, and touching one that is not to be had is
// SIGBUS.
bool PagesArePromised() {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int how = 0;
  return file >> how && how == 2;
}

// The lock is taken in one of them and released in another.
void BeforeFork() KR_NO_THREAD_SAFETY_ANALYSIS { ProcessArena()->BeforeFork(); }
void InParent() KR_NO_THREAD_SAFETY_ANALYSIS {
  ProcessArena()->AfterFork(/*in_child=*/false);
}
void InChild() KR_NO_THREAD_SAFETY_ANALYSIS {
  ProcessArena()->AfterFork(/*in_child=*/true);
}

}  // namespace

Status CreateProcessArena() {
  Slot& slot = TheSlot();
  MutexLock lock(slot.mutex);
  if (slot.arena != nullptr) return OkStatus();
  if (PagesArePromised()) {
    return FailedPreconditionError(
        "the system promises memory before it is used "
        "(vm.overcommit_memory is 2)");
  }
  KR_ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena,
                      Arena::Create(ArenaBytes(), slot.clock));
  slot.arena = std::move(arena);
  pthread_atfork(BeforeFork, InParent, InChild);
  return OkStatus();
}

std::shared_ptr<Arena> ProcessArena() {
  MutexLock lock(TheSlot().mutex);
  return TheSlot().arena;
}

}  // namespace keras_ring
