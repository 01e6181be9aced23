// ChunkBarrier: the progress of each rank of a host in a collective, and
// waiting for the others.
#ifndef KERAS_RING_COLLECTIVE_SHM_CHUNK_BARRIER_H_
#define KERAS_RING_COLLECTIVE_SHM_CHUNK_BARRIER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/idle_limit.h"
#include "csrc/base/meter.h"
#include "csrc/base/mutex.h"
#include "csrc/base/spin.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

// The progress of a rank with a chunk. Chunks are numbered through all
// collectives of the job, from 1; zero pages mean "none yet".
enum class Phase {
  kPacked = 0,   // what it sends of the chunk is in its slot
  kReduced = 1,  // it has read what it wanted from the slots of the others
  // it has read all that it wanted of the others' tensors; only for the last
  // chunk of a collective that reads them where they lie
  kUnpacked = 2,
};
inline constexpr int kNumPhases = 3;

// In the memory of each rank: written by it, read by the others.
struct ProgressPage {
  // The last chunk for which the phase is done; only grows.
  struct alignas(64) Count {
    std::atomic<uint64_t> done{0};
  };
  Count phases[kNumPhases];
  // For the last few chunks, the tag of the collective that a packed chunk
  // belongs to. With slots for `depth` chunks, a rank that has begun the next
  // collective is less than 2 * depth ahead of one that still looks at the end
  // of this one.
  static constexpr uint64_t kNumTags = 16;
  static constexpr int64_t kMaxDepth = kNumTags / 2;
  std::atomic<uint64_t> tags[kNumTags] = {};
  // Why this rank will not go on; the first reason is kept: it has left by
  // itself, perhaps because of another rank, or its process has ended.
  enum PeerState : uint32_t { kAlive = 0, kLeft = 1, kDead = 2 };
  std::atomic<uint32_t> left{kAlive};

  // The word that this rank sleeps on, and whether it sleeps: on the word, or
  // on its bell, if it waits for connections as well.
  struct alignas(64) WaitWord {
    enum Sleep : uint32_t { kAwake = 0, kOnWord = 1, kOnBell = 2 };
    std::atomic<uint32_t> asleep{kAwake};
    std::atomic<uint32_t> calls{0};
  };
  WaitWord wait;
};

struct ChunkBarrierOptions {
  // By local rank: the bells of the ranks that may wait for connections as
  // well. Empty: there are none.
  std::vector<const Socket*> bells;
  // The longest wait for a peer that makes no progress.
  std::shared_ptr<const IdleLimit> limit =
      std::make_shared<IdleLimit>(std::chrono::seconds(30));
  // A wait without progress is logged after this time, then after twice the
  // time, and so on.
  Duration report_time = std::chrono::seconds(30);
  Duration spin = Duration::zero();
  // The clock of these durations. Must outlive the barrier.
  const Clock* clock = &SystemTime();
};

// For one thread, except where noted.
class ChunkBarrier {
 public:
  // `pages`: by local rank. `ranks`: their ranks in the job, for messages. All
  // references must outlive the object.
  ChunkBarrier(std::vector<ProgressPage*> pages, std::vector<int> ranks,
               int index, const ChunkBarrierOptions& options,
               const Meter& meter);

  // Sets the number of the current collective, equal on all ranks. Awaiting a
  // packed chunk of a peer that runs another collective is an error.
  void SetTag(uint64_t tag) { tag_ = tag; }
  uint64_t tag() const { return tag_; }

  // See InlineExecution::SetProgressCallback.
  void SetProgressCallback(const std::function<void()>* progress) {
    progress_ = progress;
  }

  // This rank has done `phase` for all chunks up to `chunk`.
  void Publish(Phase phase, uint64_t chunk);

  // Waits until the others have done `phase` up to `chunk`. Fails with the
  // cause of an abort, or naming the rank with kUnavailable if it has left, and
  // kDeadlineExceeded if it makes no progress. A rank that was killed cannot
  // report that it leaves: code that notices must call SetGone or Abort.
  Status AwaitAll(Phase phase, uint64_t chunk);
  Status Await(int local_rank, Phase phase, uint64_t chunk);

  // For a thread that waits for connections as well, and does not use Await.
  // Return whether the others have done `phase` up to `chunk`.
  bool AllHaveDone(Phase phase, uint64_t chunk) const;
  bool HasDone(int local_rank, Phase phase, uint64_t chunk) const {
    return pages_[local_rank]->phases[static_cast<int>(phase)].done.load() >=
           chunk;
  }
  // Returns an error if another rank has packed a chunk for another collective.
  Status CheckTags(uint64_t chunk) const;
  // Returns an error if a rank has left that has not done `phase` up to
  // `chunk`; also the cause of an abort.
  Status CheckNobodyLost(Phase phase, uint64_t chunk);
  // A number that grows with each event that must wake a sleeping thread:
  // another rank has done a phase of a chunk, a rank has left or is gone, or
  // Abort was called.
  uint64_t NumEvents() const;
  // From now on this rank's bell rings when others have made progress. The
  // caller must look once more before it sleeps.
  void BeginSleep();
  void EndSleep();
  // Wakes this rank's thread if it sleeps. Called by another thread of the
  // rank, which must make its work visible before.
  void WakeSelf();

  // Fails if another rank has left. A rank that fails leaves before it gives up
  // its tensors; so if this call succeeds, all that was read from them before
  // it is valid.
  Status CheckNobodyLeft() const;

  // The others must not wait for what this rank has not done yet. Any thread.
  void Leave() { SetLeft(local_rank_, ProgressPage::kLeft); }
  // The same for another rank, whose process has ended. To be called before
  // this rank leaves because of that: then a rank that waits for this one
  // blames the other.
  void SetGone(int local_rank) { SetLeft(local_rank, ProgressPage::kDead); }

  // Any thread: the current and all later waits fail with `cause`.
  void Abort(const Status& cause) KR_EXCLUDES(mutex_);

 private:
  Status Wait(int local_rank, Phase phase, uint64_t chunk);
  // Returns how a wait for `local_rank` has ended, if not by its limit; `lost`
  // is the rank to blame.
  Status Outcome(int local_rank, Phase phase, uint64_t chunk, int lost)
      KR_EXCLUDES(mutex_);
  Status HasLeft(int local_rank) const;
  // "rank 3 has not moved for 30 s"
  std::string IdleText(int local_rank, Duration idle) const;
  void SetLeft(int local_rank, ProgressPage::PeerState left);
  // Returns the rank to blame if a rank has left that has not done `phase` of
  // `chunk`; else -1. If the process of a rank has ended, it is that one:
  // others leave because of it. It may even have done its own share.
  int FirstLost(Phase phase, uint64_t chunk) const;
  int FailedPeer(int left) const;
  void Wake(int local_rank);
  void WakeOthers();
  Status CheckTag(int local_rank, uint64_t chunk) const;

  const std::vector<ProgressPage*> pages_;
  const std::vector<int> ranks_;
  const int local_rank_;
  const ChunkBarrierOptions options_;
  const Meter meter_;
  Spinner spinner_;
  uint64_t tag_ = 0;
  const std::function<void()>* progress_ = nullptr;

  std::atomic<bool> aborted_{false};
  Mutex mutex_;
  Status cause_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_CHUNK_BARRIER_H_
