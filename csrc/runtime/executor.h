// Executor: the data thread. Runs the decided buckets in order.
#ifndef KERAS_RING_RUNTIME_EXECUTOR_H_
#define KERAS_RING_RUNTIME_EXECUTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/control/controller.h"
#include "csrc/control/tensor_entry.h"

namespace keras_ring {

// A bucket to run: what was decided, and this rank's entries for it, in the
// order of the command's items.
struct Bucket {
  Command command;
  std::vector<TensorEntry> entries;
};

class Executor {
 public:
  struct Callbacks {
    // A bucket was executed. From the data thread.
    std::function<void()> executed;
    // A collective failed with this. From the data thread, at most once; it
    // then waits for Abort to say what really happened.
    std::function<void(const Status&)> failed;
  };

  // All references must outlive the executor.
  Executor(int size, Collective& collective, Counters& counters,
           Callbacks callbacks);
  ~Executor();

  void Start();
  // Any thread. After an abort the entries finish with its cause at once.
  void Push(Bucket bucket) KR_EXCLUDES(mutex_);
  // Any thread: breaks the running collective; its entries and those of the
  // buckets behind it finish with `cause`. The first cause is kept.
  void Abort(const Status& cause) KR_EXCLUDES(mutex_);
  // Finishes what was pushed, then joins. Idempotent.
  void Stop() KR_EXCLUDES(mutex_);

 private:
  void Run();
  void Execute(Bucket bucket);
  Status RunBucket(const Command& command, std::vector<TensorEntry>& entries);
  Status Allreduce(const Command& command, std::vector<TensorEntry>& entries);
  Status Allgather(const Command& command, TensorEntry& entry);
  Status Broadcast(const Command& command, std::vector<TensorEntry>& entries);
  Status WaitForAbort() KR_EXCLUDES(mutex_);

  const int size_;
  Collective& collective_;
  Counters& counters_;
  const Callbacks callbacks_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Bucket> buckets_ KR_GUARDED_BY(mutex_);
  Status aborted_ KR_GUARDED_BY(mutex_);
  bool stopping_ KR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_EXECUTOR_H_
