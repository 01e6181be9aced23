// Meter: records what the parts of a runtime spend their time on.
//
// Each phase has a counter, which is always kept. A phase may also be traced:
// while a sink is active, it receives every span.
#ifndef KERAS_RING_BASE_METER_H_
#define KERAS_RING_BASE_METER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"

namespace keras_ring {

// The phases of an operation, in the order in which it passes through them.
enum class TracePhase : uint8_t {
  kNegotiate = 0,  // submitted, and not agreed on
  kQueue,          // decided, and its bucket not begun
  kExecute,        // its bucket runs; of that:
  kWait,           //   waiting for other ranks
  kPack,           //   copying to where other ranks read, or what is sent
  kReduce,         //   combining numbers
  kUnpack,         //   copying results into tensors
  kCallback,       // the framework's operation is finished
  // Phases that the program reports, and single moments. They have no counters.
  kStep = 16,
  kEpoch,
  kData,  // it waits for its input pipeline
  kCheckpoint,
  kEvaluate,
  kPredict,
  kUser,       // a slice that it has named
  kCycle,      // a decision was made
  kLate,       // of a bucket: which rank was last to be ready, and by how much
  kAlgorithm,  // of a collective: its name says which was chosen
};
inline constexpr int kNumTracePhases = 8;

inline Counters::Count& CounterOf(Counters& counters, TracePhase phase) {
  constexpr Counters::Count Counters::*kCounters[] = {
      &Counters::negotiate_ns, &Counters::queue_ns,   &Counters::execute_ns,
      &Counters::wait_ns,      &Counters::pack_ns,    &Counters::reduce_ns,
      &Counters::unpack_ns,    &Counters::callback_ns};
  static_assert(sizeof(kCounters) / sizeof(kCounters[0]) == kNumTracePhases);
  return counters.*kCounters[static_cast<int>(phase)];
}

struct TraceSpan {
  TracePhase phase = TracePhase::kExecute;
  // The tag of the collective, equal on all ranks; 0 if it belongs to none.
  uint64_t tag = 0;
  TimePoint begin{};
  TimePoint end{};  // equal to `begin`: a moment
  // The rank in the job that the span is about. kNobody: all ranks, or unknown.
  static constexpr int32_t kNobody = -1;
  int32_t peer = kNobody;
  std::string_view name;  // need not live on
  int64_t value = 0;      // bytes; for kStep its number; for kLate nanoseconds
  size_t tensors = 0;     // for kExecute
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Returns whether the sink takes spans now. Callers that would have to
  // collect data for a span ask first.
  bool active() const { return active_->load(std::memory_order_relaxed); }
  // May be called from any thread; must be quick.
  virtual void Record(const TraceSpan* spans, size_t count) = 0;
  void Record(const TraceSpan& span) { Record(&span, 1); }

 protected:
  // `active` must outlive the object.
  explicit TraceSink(const std::atomic<bool>& active) : active_(&active) {}

 private:
  const std::atomic<bool>* const active_;
};

// Cheap to copy. The counters and the sink must outlive it.
class Meter {
 public:
  // A meter that records nothing.
  Meter() = default;
  Meter(Counters& counters,  // NOLINT(google-explicit-constructor)
        TraceSink* sink = nullptr)
      : counters_(&counters), sink_(sink) {}

  void Count(TracePhase phase, Duration time) const {
    if (counters_ == nullptr) return;
    CounterOf(*counters_, phase)
        .fetch_add(time.count(), std::memory_order_relaxed);
  }
  // Returns null while no sink is active.
  TraceSink* sink() const {
    return sink_ != nullptr && sink_->active() ? sink_ : nullptr;
  }
  void Trace(const TraceSpan& span) const {
    if (TraceSink* const to = sink()) to->Record(span);
  }
  // Records that this algorithm was chosen for the collective `tag`.
  void TraceAlgorithm(uint64_t tag, std::string_view name) const {
    TraceSink* const to = sink();
    if (to == nullptr) return;
    TraceSpan span;
    span.phase = TracePhase::kAlgorithm;
    span.tag = tag;
    span.begin = span.end = std::chrono::steady_clock::now();
    span.name = name;
    to->Record(span);
  }
  void Add(const TraceSpan& span) const {
    Count(span.phase, span.end - span.begin);
    Trace(span);
  }

 private:
  Counters* counters_ = nullptr;
  TraceSink* sink_ = nullptr;
};

// Adds the time from its construction to its destruction.
class TimedPhase {
 public:
  // `peer`: see TraceSpan.
  TimedPhase(const Meter& meter, TracePhase phase, uint64_t tag,
             int32_t peer = TraceSpan::kNobody)
      : meter_(meter) {
    span_.phase = phase;
    span_.tag = tag;
    span_.peer = peer;
    span_.begin = std::chrono::steady_clock::now();
  }
  ~TimedPhase() {
    span_.end = std::chrono::steady_clock::now();
    meter_.Add(span_);
  }
  TimedPhase(const TimedPhase&) = delete;
  TimedPhase& operator=(const TimedPhase&) = delete;

 private:
  const Meter& meter_;
  TraceSpan span_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_METER_H_
