#include "csrc/comm/host/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "csrc/base/deadline.h"
#include "csrc/base/round.h"

namespace keras_ring {
namespace {

constexpr uint64_t kPage = 4096;

uint64_t WholePages(uint64_t bytes) {
  return RoundUp(std::max<uint64_t>(bytes, 1), kPage);
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::Create(size_t bytes, const Clock& clock,
                                             const ArenaOptions& options) {
  KR_ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Create("keras_ring tensors", WholePages(bytes)));
  // Unlike a segment of the job's own, the child of a fork needs the place: it
  // must not be taken before its copy is put there.
  (void)madvise(memory.data(), memory.bytes(), MADV_DOFORK);
  return std::unique_ptr<Arena>(new Arena(std::move(memory), clock, options));
}

void* Arena::Allocate(size_t bytes) {
  const uint64_t size = WholePages(bytes);
  Offset begin;
  std::vector<Excess> excess;
  {
    MutexLock lock(mutex_);
    // Pages that are there already go first.
    bool found = TakeFree(size, true, &begin) || TakeFree(size, false, &begin);
    if (!found && memory_.bytes() - untouched_ >= size) {
      found = true;
      begin = untouched_;
      untouched_ += size;
    }
    if (!found) {
      JoinAll();
      found = TakeFree(size, true, &begin) || TakeFree(size, false, &begin);
    }
    if (!found) return nullptr;
    used_.emplace(begin, size);
    stats_.bytes_in_use += size;
    ++stats_.blocks;
    NoteUse();
    // New pages, while some are kept into which nothing like this fits.
    excess = TakeExcess();
  }
  GiveBack(excess);
  return memory_.data() + begin;
}

bool Arena::TakeFree(uint64_t size, bool kept, Offset* begin) {
  auto fit = by_size_[kept].lower_bound({size, 0});
  if (fit == by_size_[kept].end()) return false;
  const Offset offset = fit->second;
  const FreeBlock block = free_.at(offset);
  RemoveFree(offset);
  if (block.bytes > size) {
    AddFree(offset + size, {block.bytes - size, block.kept_since});
  }
  *begin = offset;
  return true;
}

// The address space is fragmented: merges neighbours even if their kinds
// differ.
void Arena::JoinAll() {
  auto it = free_.begin();
  while (it != free_.end()) {
    auto next = std::next(it);
    if (next == free_.end()) return;
    const auto [begin, block] = *it;
    if (begin + block.bytes != next->first) {
      it = next;
      continue;
    }
    const FreeBlock other = next->second;
    RemoveFree(next->first);
    RemoveFree(begin);
    AddFree(begin, {block.bytes + other.bytes,
                    std::max(block.kept_since, other.kept_since)});
    it = free_.find(begin);
    if (it == free_.end()) it = free_.begin();  // joined with one before
  }
}

void Arena::Free(void* block) {
  std::vector<Excess> excess;
  {
    MutexLock lock(mutex_);
    const Offset begin = static_cast<char*>(block) - memory_.data();
    auto used = used_.find(begin);
    KR_CHECK(used != used_.end());
    const uint64_t size = used->second;
    used_.erase(used);
    stats_.bytes_in_use -= size;
    --stats_.blocks;
    AddFree(begin, {size, ++calls_});
    NoteUse();
    excess = TakeExcess();
  }
  GiveBack(excess);
}

// Merges neighbours of the same kind: blocks that were given back stay apart
// from those that are kept.
void Arena::AddFree(Offset begin, FreeBlock block) {
  auto join =
      [&](std::map<Offset, FreeBlock>::iterator neighbour) KR_REQUIRES(mutex_) {
        const auto [at, other] = *neighbour;
        if (other.kept() != block.kept()) return;
        RemoveFree(at);
        begin = std::min(begin, at);
        block.bytes += other.bytes;
        block.kept_since = std::max(block.kept_since, other.kept_since);
      };
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + block.bytes) join(next);
  auto before = free_.lower_bound(begin);
  if (before != free_.begin()) {
    --before;
    if (before->first + before->second.bytes == begin) join(before);
  }
  free_.emplace(begin, block);
  by_size_[block.kept()].emplace(block.bytes, begin);
  if (!block.kept()) return;
  by_age_.emplace(block.kept_since, begin);
  stats_.bytes_kept += block.bytes;
}

void Arena::RemoveFree(Offset begin) {
  auto it = free_.find(begin);
  const FreeBlock& block = it->second;
  by_size_[block.kept()].erase({block.bytes, begin});
  if (block.kept()) {
    by_age_.erase({block.kept_since, begin});
    stats_.bytes_kept -= block.bytes;
  }
  free_.erase(it);
}

void Arena::NoteUse() {
  const TimePoint now = clock_.Now();
  if (now >= window_end_) {
    // No call for two windows or more: the peak before does not count.
    last_peak_ =
        now >= window_end_ + options_.window ? stats_.bytes_in_use : peak_;
    peak_ = stats_.bytes_in_use;
    window_end_ = now + options_.window;
  }
  peak_ = std::max(peak_, stats_.bytes_in_use);
}

std::vector<Arena::Excess> Arena::TakeExcess() {
  std::vector<Excess> result;
  // A quarter at most: a program that needs little keeps little.
  const uint64_t peak = std::max(peak_, last_peak_);
  // Rounded, or blocks would be cut within a page.
  const uint64_t limit = WholePages(peak + std::min(options_.slack, peak / 4));
  while (!by_age_.empty() && stats_.bytes_in_use + stats_.bytes_kept > limit) {
    const Offset begin = by_age_.begin()->second;
    const FreeBlock block = free_.at(begin);
    const uint64_t excess = stats_.bytes_in_use + stats_.bytes_kept - limit;
    const uint64_t bytes = std::min(block.bytes, excess);
    RemoveFree(begin);
    if (block.bytes > bytes) {
      AddFree(begin + bytes, {block.bytes - bytes, block.kept_since});
    }
    result.push_back({begin, bytes});
  }
  return result;
}

void Arena::GiveBack(const std::vector<Excess>& excess) {
  if (excess.empty()) return;
  for (const Excess& each : excess) {
    // Where this fails the pages stay, which does no harm.
    if (shared()) {
      (void)madvise(memory_.data() + each.begin, each.bytes, MADV_REMOVE);
    } else {
      (void)Renew(each.begin, each.bytes);
    }
  }
  MutexLock lock(mutex_);
  for (const Excess& each : excess) {
    AddFree(each.begin, {each.bytes, 0});
    stats_.bytes_returned += each.bytes;
  }
}

const std::vector<Arena::StatDescription>& Arena::DescribeStats() {
  static const auto& rows = *new std::vector<StatDescription>{
      {"arena_bytes_in_use", "of tensors that lie in this rank's arena",
       &Stats::bytes_in_use},
      {"arena_bytes_kept", "of the arena that are free, and kept for reuse",
       &Stats::bytes_kept},
      {"arena_bytes_returned", "of the arena that the system has got back",
       &Stats::bytes_returned},
  };
  return rows;
}

Arena::Stats Arena::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

size_t Arena::BlockBytes(const void* block) const {
  MutexLock lock(mutex_);
  auto it = used_.find(static_cast<const char*>(block) - memory_.data());
  return it == used_.end() ? 0 : it->second;
}

bool Arena::IsCopiedByFork() const {
  MutexLock lock(mutex_);
  return !shared() || stats_.bytes_in_use <= options_.fork_copy_bytes;
}

void Arena::BeforeFork() {
  mutex_.Lock();
  if (!shared()) return;
  int ends[2];
  // Without a pipe the parent does not wait, and a child that reads a tensor
  // may see changes that the parent makes meanwhile.
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  for (int i = 0; i < 2; ++i) copied_[i] = Socket(ends[i]);
}

// A fork copies memory that is private. This one is shared: so the child makes
// the copy, and the parent waits for it, for it would go on to change the
// tensors or to use their memory for others. The lock is held meanwhile.
void Arena::AfterFork(bool in_child) {
  if (shared()) {
    if (in_child) LeaveParent();
    copied_[1] = Socket();
    if (!in_child && copied_[0].valid()) {
      // Waits for the end of the stream, as nothing is written: the child has
      // closed the pipe, or is dead. It may also hang in an atfork handler of
      // another library.
      const Deadline deadline = Deadline::After(options_.fork_copy_limit);
      pollfd entry = {copied_[0].fd(), POLLIN, 0};
      while (poll(&entry, 1, deadline.PollTimeoutMs()) < 0 && errno == EINTR) {
      }
    }
    copied_[0] = Socket();
  }
  mutex_.Unlock();
}

void Arena::LeaveParent() {
  // Or it would write to its parent's tensors.
  KR_CHECK(Renew(0, memory_.bytes()));
  const bool copies = stats_.bytes_in_use <= options_.fork_copy_bytes;
  if (!copies || !CopyBlocks()) MapBlocks();
  shared_.store(false);
}

bool Arena::CopyBlocks() {
  for (const auto& [begin, bytes] : used_) {
    for (uint64_t done = 0; done < bytes;) {
      const ssize_t count =
          pread(memory_.descriptor().fd(), memory_.data() + begin + done,
                bytes - done, static_cast<off_t>(begin + done));
      if (count <= 0 && errno != EINTR) return false;
      if (count > 0) done += count;
    }
  }
  return true;
}

void Arena::MapBlocks() {
  if (untouched_ == 0) return;
  void* mapped = mmap(memory_.data(), untouched_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                      memory_.descriptor().fd(), 0);
  KR_CHECK(mapped != MAP_FAILED);  // or tensors would be zero
  (void)madvise(mapped, untouched_, MADV_DONTDUMP);
  // The child must not use the blocks that are free there: where the parent has
  // given a block back, writing to it would take a page in the parent's arena,
  // and another one here. New blocks come from the untouched rest.
  free_.clear();
  by_age_.clear();
  for (auto& sizes : by_size_) sizes.clear();
  stats_.bytes_kept = 0;
}

bool Arena::Renew(Offset begin, uint64_t bytes) {
  void* pages =
      mmap(memory_.data() + begin, bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return false;
  // A pipe that a core dump goes to would get a zero for each byte.
  (void)madvise(pages, bytes, MADV_DONTDUMP);
  return true;
}

}  // namespace keras_ring
