// TensorQueue: holds entries by name while they wait; the only structure of the
// control floor that framework threads touch.
#ifndef KERAS_RING_CONTROL_TENSOR_QUEUE_H_
#define KERAS_RING_CONTROL_TENSOR_QUEUE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/control/bucket_gate.h"
#include "csrc/control/flight_recorder.h"
#include "csrc/control/name_table.h"
#include "csrc/control/tensor_entry.h"

namespace keras_ring {

// An entry is *fresh* until the loop has popped its request; then it is in
// negotiation until it is taken. The difference matters when a name fails: a
// fresh entry of that name belongs to the next use, not to the one that failed.
//
// Never calls out (a completion, a callback) while holding its lock.
class TensorQueue {
 public:
  // `wake` is called, without the lock, when an Add has left something to do:
  // requests to pop where there were none, or a release to wait for. `clock`
  // and `counters` (if not null) must outlive the queue.
  explicit TensorQueue(std::function<void()> wake,
                       const Clock& clock = SystemTime(),
                       Counters* counters = nullptr)
      : wake_(std::move(wake)),
        clock_(clock),
        recorder_(FlightRecorder::kUsualCapacity, counters) {}

  // Parks the entry. On an error nothing is kept and the completion does not
  // fire:
  //   kInvalidArgument     the name is already in flight,
  //   kFailedPrecondition  there is a join,
  //   the status given to Close.
  Status Add(TensorEntry entry) KR_EXCLUDES(mutex_);

  // Replaces `requests` by those that may go on since the last call, in order
  // of arrival, except those that the plan holds back until the rest of their
  // bucket is there. A join goes on once all entries before it have been taken:
  // so a rank that has joined has nothing in flight.
  void PopRequests(std::vector<RequestPtr>& requests) KR_EXCLUDES(mutex_);

  // Returns when a request that is held back goes on without the rest.
  std::optional<TimePoint> NextRelease() const KR_EXCLUDES(mutex_);

  // Sets the buckets of names that are to go on together.
  void SetPlan(const std::vector<std::vector<std::string>>& buckets)
      KR_EXCLUDES(mutex_);

  // Takes out the entries of `agreed`, in that order. kInternal if one of them
  // is not in negotiation, or differs from what this `rank` has asked for: then
  // the peer that decided so has broken the protocol. `entries` then has those
  // before it, for the caller to finish.
  Status Take(const std::vector<std::shared_ptr<const Response>>& agreed,
              int rank, std::vector<TensorEntry>& entries) KR_EXCLUDES(mutex_);

  // Takes the entry of `name` if it is in negotiation.
  std::vector<TensorEntry> TakeIfNegotiating(const std::string& name)
      KR_EXCLUDES(mutex_);

  // Takes the join, if there is one.
  std::vector<TensorEntry> TakeJoin() KR_EXCLUDES(mutex_);

  // Makes every later Add fail with `status`; returns all entries, for the
  // caller to finish. Later calls change nothing and return nothing.
  std::vector<TensorEntry> Close(const Status& status) KR_EXCLUDES(mutex_);

  size_t size() const KR_EXCLUDES(mutex_);

  // Records every entry that was ever parked. The code that takes an entry must
  // record its outcome.
  FlightRecorder& recorder() { return recorder_; }

 private:
  Status Park(TensorEntry& entry) KR_REQUIRES(mutex_);
  // Returns whether the join may go on now; it is then among the requests.
  bool ReleaseJoin() KR_REQUIRES(mutex_);

  struct Parked {
    TensorEntry entry;
    bool fresh = true;

    void Clear() { *this = Parked(); }
  };

  const std::function<void()> wake_;
  const Clock& clock_;
  FlightRecorder recorder_;
  mutable Mutex mutex_;
  NameTable<Parked> parked_ KR_GUARDED_BY(mutex_);
  BucketGate gate_ KR_GUARDED_BY(mutex_);
  std::vector<RequestPtr> requests_ KR_GUARDED_BY(mutex_);
  std::optional<TensorEntry> join_ KR_GUARDED_BY(mutex_);
  bool join_released_ KR_GUARDED_BY(mutex_) = false;
  Status closed_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_TENSOR_QUEUE_H_
