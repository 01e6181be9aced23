// Executor: runs the decided buckets in order, large ones on the data thread.
#ifndef KERAS_RING_RUNTIME_EXECUTOR_H_
#define KERAS_RING_RUNTIME_EXECUTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/mutex.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_checker.h"
#include "csrc/collective/collective.h"
#include "csrc/control/controller.h"
#include "csrc/control/tensor_entry.h"

namespace keras_ring {

// A bucket to run: what was decided, and this rank's entries for it, in the
// order of the command's items. None if this rank has joined: it takes part
// with what changes nothing.
struct Bucket {
  Command command;
  std::vector<TensorEntry> entries;
  TimePoint decided{};
};

class Executor {
 public:
  struct Callbacks {
    // A bucket was executed. From the thread that ran it, as is the next.
    std::function<void()> executed;
    // A collective failed with this. At most once; the entries wait for Abort
    // to say what really happened.
    std::function<void(const Status&)> failed;
    // Entries come to their end with this: before their completions fire.
    std::function<void(const std::vector<TensorEntry>&, const Status&)> ended =
        [](const std::vector<TensorEntry>&, const Status&) {};
  };

  // All references must outlive the executor. `ranks`: those that `rank` is
  // counted in.
  Executor(int rank, int size, Collective& collective, Counters& counters,
           Callbacks callbacks, RankSet ranks = {});
  ~Executor();

  Status Start();
  // From one thread. Runs the bucket at once and by itself if it is small and
  // nothing is before it, for handing it over would take longer; else pushes it
  // to the data thread. `progress`: called while the thread waits for
  // other ranks. After an abort the entries finish with its cause at once.
  void RunOrPush(Bucket bucket, const std::function<void()>& progress)
      KR_EXCLUDES(mutex_);
  // Any thread; see Collective::PeerGone.
  void PeerGone(int rank) { collective_.PeerGone(rank); }
  // Any thread: breaks the running collective; its entries and those of the
  // buckets behind it finish with `cause`. The first cause is kept.
  void Abort(const Status& cause) KR_EXCLUDES(mutex_);
  // Finishes what was pushed, and joins; waits for Abort if a collective has
  // failed, but not for longer than `cause_limit`: then the failure is the
  // cause. Idempotent.
  void Stop(Duration cause_limit = std::chrono::seconds(5)) KR_EXCLUDES(mutex_);

 private:
  void Push(Bucket bucket) KR_EXCLUDES(mutex_);
  void Run();
  void Execute(Bucket bucket);
  Status RunBucket(const Command& command, std::vector<TensorEntry>& entries);
  Status Allreduce(const Command& command, std::vector<TensorEntry>& entries);
  Status Allgather(const Command& command, TensorEntry& entry);
  Status Broadcast(const Command& command, std::vector<TensorEntry>& entries);
  Status Reducescatter(const Command& command, TensorEntry& entry);
  Status Alltoall(const Command& command, TensorEntry& entry);
  // Fires their completions.
  void End(std::vector<TensorEntry>& entries, const Status& status) const;
  int Contributors(const Command& command) const {
    return size_ - static_cast<int>(command.joined.size());
  }
  bool MayRunHere(const Bucket& bucket) KR_EXCLUDES(mutex_);
  // Finishes the entries with the cause of the abort, once it is known.
  void FinishWhenAborted(std::vector<TensorEntry> entries) KR_EXCLUDES(mutex_);

  const int rank_;
  const int size_;
  Collective& collective_;
  Counters& counters_;
  const Callbacks callbacks_;
  const RankSet ranks_;
  ThreadChecker pusher_;  // the one thread of RunOrPush

  Mutex mutex_;
  CondVar changed_;
  std::deque<Bucket> buckets_ KR_GUARDED_BY(mutex_);
  bool running_ KR_GUARDED_BY(mutex_) = false;  // a bucket, on some thread
  Status failure_ KR_GUARDED_BY(mutex_);        // the first
  std::vector<TensorEntry> failed_entries_ KR_GUARDED_BY(mutex_);
  Status aborted_ KR_GUARDED_BY(mutex_);
  bool stopping_ KR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_EXECUTOR_H_
