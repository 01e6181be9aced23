// FlightRecorder: the last operations of this rank, and their outcome, for
// finding out why a job hangs or has failed.
#ifndef KERAS_RING_CONTROL_FLIGHT_RECORDER_H_
#define KERAS_RING_CONTROL_FLIGHT_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/control/last_ready.h"
#include "csrc/control/tensor_entry.h"

namespace keras_ring {

enum class FlightState : uint8_t {
  kWaiting = 0,  // until all ranks have asked for it
  kRunning,      // all have, and its bucket waits for its turn or is at work
  kDone,
  kFailed,
};
// "waiting", ...
const char* FlightStateName(FlightState state);

struct FlightRecord {
  uint64_t number =
      0;  // of the operations that this rank has asked for: 1, ...
  RequestPtr request;
  FlightState state = FlightState::kWaiting;
  // The number of the decision to run it, the same on all ranks. 0 while it
  // waits, and if it failed before a decision.
  uint64_t decision = 0;
  // From kRunning on: the rank that its bucket waited for, as a rank of the
  // job.
  LastReady last;
  std::string error;  // kFailed: why
  TimePoint submitted{};
  TimePoint decided{};  // from kRunning on
  TimePoint ended{};    // kDone, kFailed
};

// Always active, so it allocates nothing while nothing fails, and is locked
// once for a whole bucket. Thread-safe.
class FlightRecorder {
 public:
  // How many operations it remembers: some steps of a large model.
  static constexpr size_t kUsualCapacity = 4096;

  // `counters` must outlive the object; null: nothing is counted.
  explicit FlightRecorder(size_t capacity = kUsualCapacity,
                          Counters* counters = nullptr);

  // Records the entry and gives it its flight number.
  void Submitted(TensorEntry& entry) KR_EXCLUDES(mutex_);
  // All ranks have asked for these entries, `last` as the last.
  void Decided(const std::vector<TensorEntry>& entries, uint64_t decision,
               const LastReady& last, TimePoint now) KR_EXCLUDES(mutex_);
  // To be called before their completions fire: code that waits for these may
  // go on then.
  void Ended(const std::vector<TensorEntry>& entries, const Status& status,
             TimePoint now) KR_EXCLUDES(mutex_);

  // Returns the records, oldest first.
  std::vector<FlightRecord> Records() const KR_EXCLUDES(mutex_);

 private:
  // Returns null if it has been overwritten, or was never recorded.
  FlightRecord* Find(const TensorEntry& entry) KR_REQUIRES(mutex_);

  Counters* const counters_;
  mutable Mutex mutex_;
  // Number n is at n % size.
  std::vector<FlightRecord> records_ KR_GUARDED_BY(mutex_);
  uint64_t last_ KR_GUARDED_BY(mutex_) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_FLIGHT_RECORDER_H_
