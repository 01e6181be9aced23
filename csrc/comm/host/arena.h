// Arena: memory for tensors that the other ranks of the host can read where
// they lie.
#ifndef KERAS_RING_COMM_HOST_ARENA_H_
#define KERAS_RING_COMM_HOST_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/comm/host/shared_memory.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

struct ArenaOptions {
  // The length of the "last seconds" in the comment on Arena.
  Duration window = std::chrono::seconds(10);
  // Bytes that may be kept beyond the recent peak, for fragmentation; at most a
  // quarter of that peak.
  uint64_t slack = uint64_t{64} << 20;
  // The most bytes that the child of a fork gets a copy of, and how long its
  // parent waits for that copy: many times what it takes.
  uint64_t fork_copy_bytes = uint64_t{256} << 20;
  Duration fork_copy_limit = std::chrono::seconds(10);
};

// One range of addresses, as long as a process could ever need, in a memfd
// whose pages cost nothing until they are touched: so other ranks map it once,
// and no growth has to be announced.
//
// For blocks of many pages: a block is whole pages, found by best fit among the
// freed ones, else taken from the untouched rest. Freed pages are kept, since a
// training step asks for the same memory again and again, and a page costs more
// to get than to fill. Used and kept pages together are limited to the most
// that were in use at once in the last seconds, plus some slack for
// fragmentation: threads ask in another order in every step, and without slack
// each would get new pages for a large block and give others back. Pages beyond
// that limit go back to the system.
//
// The child of a fork gets a copy of the blocks that are in use, in memory of
// its own, and nobody else can read what it writes there. If they are more than
// `fork_copy_bytes` there is no copy: it would take seconds, and as much memory
// again in every child. The child then sees the blocks where they are, until it
// writes to them; until then it may also see what the parent writes to them, or
// puts there after it has freed them.
//
// Thread-safe.
class Arena {
 public:
  struct Stats {
    uint64_t bytes_in_use = 0;
    uint64_t bytes_kept = 0;  // free, and not given back
    uint64_t blocks = 0;
    uint64_t bytes_returned = 0;  // to the system, since the beginning
  };
  // For kr.metrics(), as CounterDescription.
  struct StatDescription {
    const char* name;
    const char* meaning;
    uint64_t Stats::*value;
  };
  static const std::vector<StatDescription>& DescribeStats();

  // `clock` must outlive the arena.
  static Result<std::unique_ptr<Arena>> Create(
      size_t bytes, const Clock& clock,
      const ArenaOptions& options = ArenaOptions());

  // Returns whole pages, page-aligned, with undefined contents; null if there
  // are none left.
  void* Allocate(size_t bytes) KR_EXCLUDES(mutex_);
  // `block` must come from Allocate.
  void Free(void* block) KR_EXCLUDES(mutex_);

  bool Contains(const void* address) const {
    const char* at = static_cast<const char*>(address);
    return at >= memory_.data() && at < memory_.data() + memory_.bytes();
  }
  const SharedMemory& memory() const { return memory_; }
  // Returns whether the blocks lie in memory(): not so in the child of a fork.
  bool shared() const { return shared_.load(); }
  Stats stats() const KR_EXCLUDES(mutex_);
  // Returns the size of a block in bytes; 0 if there is none at this address.
  size_t BlockBytes(const void* block) const KR_EXCLUDES(mutex_);

  // To be called around a fork. In the parent, AfterFork waits until the child
  // has its copy, for some seconds at most.
  void BeforeFork() KR_ACQUIRE(mutex_);
  void AfterFork(bool in_child) KR_RELEASE(mutex_);
  // Returns whether the child of a fork would get a copy now.
  bool IsCopiedByFork() const KR_EXCLUDES(mutex_);
  uint64_t fork_copy_bytes() const { return options_.fork_copy_bytes; }

 private:
  using Offset = uint64_t;
  struct FreeBlock {
    uint64_t bytes;
    // The number of the call since which it is kept. 0: it was given back.
    uint64_t kept_since;
    bool kept() const { return kept_since != 0; }
  };

  Arena(SharedMemory memory, const Clock& clock, const ArenaOptions& options)
      : memory_(std::move(memory)), clock_(clock), options_(options) {}
  // Pages that are no longer in the free list, and must not be used before
  // GiveBack.
  struct Excess {
    Offset begin;
    uint64_t bytes;
  };

  // Finds a free block of `size` and takes it off the free list. Stores its
  // beginning; returns whether there was one.
  bool TakeFree(uint64_t size, bool kept, Offset* begin) KR_REQUIRES(mutex_);
  void JoinAll() KR_REQUIRES(mutex_);
  void AddFree(Offset begin, FreeBlock block) KR_REQUIRES(mutex_);
  void RemoveFree(Offset begin) KR_REQUIRES(mutex_);
  void NoteUse() KR_REQUIRES(mutex_);
  // Takes the kept pages beyond the limit off the free list.
  std::vector<Excess> TakeExcess() KR_REQUIRES(mutex_);
  // The time it takes grows with the number of pages: hence without the lock.
  void GiveBack(const std::vector<Excess>& excess) KR_EXCLUDES(mutex_);
  // In the child of a fork:
  void LeaveParent() KR_REQUIRES(mutex_);
  bool CopyBlocks() KR_REQUIRES(mutex_);
  void MapBlocks() KR_REQUIRES(mutex_);
  // Replaces the pages with private zero pages; returns whether that worked.
  bool Renew(Offset begin, uint64_t bytes);

  const SharedMemory memory_;
  const Clock& clock_;
  const ArenaOptions options_;

  mutable Mutex mutex_;
  Offset untouched_ KR_GUARDED_BY(mutex_) = 0;  // from here to the end
  std::unordered_map<Offset, uint64_t> used_ KR_GUARDED_BY(mutex_);
  std::map<Offset, FreeBlock> free_ KR_GUARDED_BY(mutex_);
  // The free blocks by size: [0] those given back, [1] those kept.
  std::set<std::pair<uint64_t, Offset>> by_size_[2] KR_GUARDED_BY(mutex_);
  // The kept blocks by age; the one that has lain there longest goes first.
  std::set<std::pair<uint64_t, Offset>> by_age_ KR_GUARDED_BY(mutex_);
  uint64_t calls_ KR_GUARDED_BY(mutex_) = 0;
  Stats stats_ KR_GUARDED_BY(mutex_);
  // The most bytes in use in this window and in the one before.
  uint64_t peak_ KR_GUARDED_BY(mutex_) = 0;
  uint64_t last_peak_ KR_GUARDED_BY(mutex_) = 0;
  TimePoint window_end_ KR_GUARDED_BY(mutex_){};

  std::atomic<bool> shared_{true};
  // Used during a fork: the child closes its end when it has its copy.
  Socket copied_[2] KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_ARENA_H_
