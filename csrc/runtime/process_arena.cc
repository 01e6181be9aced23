#include "csrc/runtime/process_arena.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/logging.h"
#include "csrc/base/mutex.h"
#include "csrc/base/options.h"
#include "csrc/runtime/backends.h"

namespace keras_ring {
namespace {

// The part of a process's 128 TiB of addresses for the arenas of all ranks of
// its host.
constexpr uint64_t kAddresses = uint64_t{64} << 40;
// More than hosts have: a job has many hosts then.
constexpr int kMaxRanksOfHost = 256;

// Null, or always the same arena: tensors may be in it until the end. Read
// without a lock, also in the child of a fork, where a thread that held a lock
// is gone.
std::atomic<const std::shared_ptr<Arena>*> the_arena{nullptr};

Arena& TheArena() { return **the_arena.load(); }

// Where every page is promised beforehand, malloc can say that there is none
// left. Pages of a memfd are not, and touching one that is not to be had is
// SIGBUS.
bool PagesArePromised() {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int how = 0;
  return file >> how && how == 2;
}

// Said once: there may be a fork for every epoch.
void WarnOfNoCopy() {
  static std::atomic<bool> said{false};
  if (TheArena().IsCopiedByFork() || said.exchange(true)) return;
  KR_LOG(kWarning)
      << "a process was forked from this one, which has more than "
      << (TheArena().fork_copy_bytes() >> 20)
      << " MiB of tensors; they were not copied for it. If it reads tensors "
         "of this process, it may see what is done to them later. Have such a "
         "process started by 'spawn', or set KERAS_RING_ZERO_COPY=0";
}

// The lock is taken in one of them and released in another.
void BeforeFork() KR_NO_THREAD_SAFETY_ANALYSIS { TheArena().BeforeFork(); }
void InParent() KR_NO_THREAD_SAFETY_ANALYSIS {
  TheArena().AfterFork(/*in_child=*/false);
  WarnOfNoCopy();
}
void InChild() KR_NO_THREAD_SAFETY_ANALYSIS {
  TheArena().AfterFork(/*in_child=*/true);
}

}  // namespace

uint64_t ProcessArenaBytes(uint64_t memory_bytes, int job_size) {
  const int sharing = std::clamp(job_size, 1, kMaxRanksOfHost);
  return std::min(4 * memory_bytes, kAddresses / sharing);
}

int ZeroCopyRanks(int job_size) {
  const Result<Options> options = Options::FromEnvironment();
  if (!options.ok()) return 0;
  const int size = options->size > 1 ? options->size : job_size;
  const bool wanted =
      size > 1 && options->zero_copy && MayReadArenas(options->collective);
  return wanted ? size : 0;
}

Status CreateProcessArena(int job_size) {
  static Mutex mutex;
  MutexLock lock(mutex);
  if (the_arena.load() != nullptr) return OkStatus();
  if (PagesArePromised()) {
    return FailedPreconditionError(
        "the system promises memory before it is used "
        "(vm.overcommit_memory is 2)");
  }
  const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  static const SystemClock* clock = new SystemClock;
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<Arena> arena,
      Arena::Create(ProcessArenaBytes(memory, job_size), *clock));
  the_arena = new std::shared_ptr<Arena>(std::move(arena));
  pthread_atfork(BeforeFork, InParent, InChild);
  return OkStatus();
}

std::shared_ptr<Arena> ProcessArena() {
  const std::shared_ptr<Arena>* arena = the_arena.load();
  return arena == nullptr ? nullptr : *arena;
}

}  // namespace keras_ring
