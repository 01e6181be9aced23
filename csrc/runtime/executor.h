// Executor: runs the decided buckets in order, large ones on the data thread.
//
// A bucket is launched when its collectives have been started, and ends when
// all of them are done, on the thread that reports the last of them. A blocking
// collective is done when its start returns; with other collectives, several
// buckets are in flight.
#ifndef KERAS_RING_RUNTIME_EXECUTOR_H_
#define KERAS_RING_RUNTIME_EXECUTOR_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/meter.h"
#include "csrc/base/mutex.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/base/thread_checker.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/collective_set.h"
#include "csrc/control/decision.h"
#include "csrc/control/tensor_entry.h"
#include "csrc/runtime/join_placeholders.h"

namespace keras_ring {

// A bucket to run: the decision, and this rank's entries for it, in the order
// of the command's items. There are no entries if this rank has joined: it then
// takes part with data that changes nothing.
struct Bucket {
  ExecuteCommand command;
  std::vector<TensorEntry> entries;
  TimePoint decided{};
  // The tunables that were set since the bucket before it.
  std::vector<TuneCommand> tuned;
};

class Executor {
 public:
  struct Callbacks {
    // A bucket was launched, so that another may be decided. Called by the
    // thread that launched it.
    std::function<void()> launched;
    // A collective has failed with this status. Called at most once, from any
    // thread; the entries wait for Abort to provide the real cause.
    std::function<void(const Status&)> failed;
    // Entries have ended with this status. Called before their completions
    // fire.
    std::function<void(const std::vector<TensorEntry>&, const Status&)> ended =
        [](const std::vector<TensorEntry>&, const Status&) {};
  };

  // The limit of buckets in flight: enough to keep a device busy while the host
  // is late.
  static constexpr size_t kMaxInFlight = 8;

  // All references must outlive the executor. `ranks`: the set that `rank` is
  // counted in.
  Executor(int rank, int size, const CollectiveSet& collectives,
           Counters& counters, Callbacks callbacks, RankSet ranks = {},
           const Clock& clock = SystemTime(), TraceSink* trace = nullptr);
  ~Executor();

  const CollectiveSet& collectives() const { return collectives_; }

  Status Start();
  // Called by one thread. Runs the bucket at once on this thread if it is small
  // and no other bucket is before it, as handing it over would take longer;
  // else pushes it to the data thread. `progress`: called while the thread
  // waits for other ranks. After an abort the entries finish with its cause at
  // once.
  void RunOrPush(Bucket bucket, const std::function<void()>& progress)
      KR_EXCLUDES(mutex_);
  // Called by the same thread: buckets that are run from now on use this value.
  void Tune(TuneCommand command) { tuned_.push_back(std::move(command)); }
  // Any thread; see Collective::PeerGone.
  void PeerGone(int rank) { collectives_.PeerGone(rank); }
  // Any thread: breaks the collectives; the entries of the buckets in flight
  // and of those behind them finish with `cause`. The first cause is kept.
  void Abort(const Status& cause) KR_EXCLUDES(mutex_);
  // Finishes what was pushed, and joins. No wait for others is longer than
  // `limit`:
  //   - for the next of the calls that go on after they were started. Then the
  //     job is aborted, and a bucket that does not end after that is given up:
  //     its entries finish with an error, its memory of the call is kept for
  //     whoever still reports that it is done. What is lost is logged.
  //   - for Abort, if a collective has failed: then the failure is the cause.
  // A call that has not returned from its start is waited for: those have
  // limits of their own. Idempotent.
  void Stop(Duration limit = std::chrono::seconds(5)) KR_EXCLUDES(mutex_);

 private:
  // A bucket in flight.
  struct Flight {
    Bucket bucket;
    TimePoint began{};
    JoinPlaceholders placeholders;
    std::vector<CollectiveArgs> calls;
    // The number of calls that are not done, plus kStarting while they are
    // started.
    static constexpr size_t kStarting = size_t{1} << 32;
    std::atomic<size_t> left{kStarting};
    // Set by the thread that ends it: that of its last call, or of Stop.
    std::atomic<bool> ending{false};
    StickyStatus failure;
    std::list<Flight>::iterator self;  // in its list

    // `done` of the calls that are left are done. Returns whether the caller
    // must end the bucket.
    bool IsLast(const Status& status, size_t done = 1);
    // Returns whether it ends by itself: no thread of ours is in it.
    bool goes_on_alone() const {
      const size_t calls = left.load();
      return 0 < calls && calls < kStarting;
    }
  };
  using Flights = std::list<Flight>;

  void Push(Bucket bucket) KR_EXCLUDES(mutex_);
  void Run() KR_EXCLUDES(mutex_);
  Flight& AddFlight(Bucket bucket) KR_REQUIRES(mutex_);
  void Launch(Flight& flight) KR_EXCLUDES(mutex_);
  // These trace the phases before the bucket, and its outcome.
  void TraceBegin(const Flight& flight, TraceSink& trace) const;
  void TraceEnd(const Flight& flight, TimePoint done, TraceSink& trace) const;
  // Makes the calls of the bucket, and starts them.
  Status StartCalls(Flight& flight);
  // Waits until nothing is pushed or in flight. Returns false if no bucket has
  // ended for `limit`, and those in flight all go on alone.
  bool AwaitFlights(Duration limit) KR_EXCLUDES(mutex_);
  // Describes what was started and has not ended: "allreduce 'a', allgather
  // 'b'".
  std::string Unfinished() KR_EXCLUDES(mutex_);
  // Ends the buckets that do not end by themselves, even after an abort.
  void GiveUp() KR_EXCLUDES(mutex_);
  void Finalize(Flight& flight) KR_EXCLUDES(mutex_);
  // These add the calls of a bucket. Results are allocated here.
  Status AddCalls(Flight& flight);
  // Adds to the calls where their memory is, and when it is ready.
  Status AddDevices(Flight& flight);
  void AddAllreduces(Flight& flight);
  Status AddAllgathers(Flight& flight);
  void AddBroadcast(Flight& flight);
  Status AddReducescatters(Flight& flight);
  Status AddAlltoall(Flight& flight);
  // Fires their completions.
  void End(std::vector<TensorEntry>& entries, const Status& status) const;
  int Contributors(const ExecuteCommand& command) const {
    return size_ - static_cast<int>(command.joined.size());
  }
  // Returns the execution that may run the bucket on this thread; null if it
  // must be pushed.
  InlineExecution* InlineExecutionFor(const Bucket& bucket) const;
  // Finishes the entries with the cause of the abort, once it is known.
  void FinishWhenAborted(std::vector<TensorEntry> entries) KR_EXCLUDES(mutex_);

  const int rank_;
  const int size_;
  const CollectiveSet collectives_;
  Counters& counters_;
  const Meter meter_;  // of these
  const Callbacks callbacks_;
  const RankSet ranks_;
  const Clock& clock_;
  ThreadChecker pusher_;            // the one thread of RunOrPush
  std::vector<TuneCommand> tuned_;  // by it, before the next bucket

  Mutex mutex_;
  CondVar changed_;
  std::deque<Bucket> buckets_ KR_GUARDED_BY(mutex_);
  Flights in_flight_ KR_GUARDED_BY(mutex_);
  uint64_t num_ended_ KR_GUARDED_BY(mutex_) = 0;  // of those
  Status failure_ KR_GUARDED_BY(mutex_);          // the first
  std::vector<TensorEntry> failed_entries_ KR_GUARDED_BY(mutex_);
  Status aborted_ KR_GUARDED_BY(mutex_);
  bool stopping_ KR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_EXECUTOR_H_
