// Meter: where the parts of a runtime say what they spend their time with.
//
// Each phase has a counter, which is always kept, and may be traced: then every
// span of it goes to a sink.
#ifndef KERAS_RING_BASE_METER_H_
#define KERAS_RING_BASE_METER_H_

#include <chrono>
#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"

namespace keras_ring {

// Of an operation, in the order in which it comes to them.
enum class TracePhase : uint8_t {
  kNegotiate = 0,  // submitted, and not agreed on
  kQueue,          // decided, and its bucket not begun
  kExecute,        // its bucket runs; of that:
  kWait,           //   waiting for other ranks
  kPack,           //   copying to where other ranks read, or what is sent
  kReduce,         //   combining numbers
  kUnpack,         //   copying results into tensors
  kCallback,       // the framework's operation is finished
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

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // `tag`: the number of the collective, alike on all ranks. From any thread;
  // must be quick.
  virtual void Span(TracePhase phase, uint64_t tag, TimePoint begin,
                    TimePoint end) = 0;
};

// Copied freely; what it refers to must outlive it.
class Meter {
 public:
  // One that nobody reads.
  Meter() = default;
  Meter(Counters& counters,  // NOLINT(google-explicit-constructor)
        TraceSink* sink = nullptr)
      : counters_(&counters), sink_(sink) {}

  void Count(TracePhase phase, Duration time) const {
    if (counters_ == nullptr) return;
    CounterOf(*counters_, phase)
        .fetch_add(time.count(), std::memory_order_relaxed);
  }
  void Trace(TracePhase phase, uint64_t tag, TimePoint begin,
             TimePoint end) const {
    if (sink_ != nullptr) sink_->Span(phase, tag, begin, end);
  }
  void Add(TracePhase phase, uint64_t tag, TimePoint begin,
           TimePoint end) const {
    Count(phase, end - begin);
    Trace(phase, tag, begin, end);
  }

 private:
  Counters* counters_ = nullptr;
  TraceSink* sink_ = nullptr;
};

// Adds the time from its construction to its destruction.
class TimedPhase {
 public:
  TimedPhase(const Meter& meter, TracePhase phase, uint64_t tag)
      : meter_(meter),
        phase_(phase),
        tag_(tag),
        began_(std::chrono::steady_clock::now()) {}
  ~TimedPhase() {
    meter_.Add(phase_, tag_, began_, std::chrono::steady_clock::now());
  }
  TimedPhase(const TimedPhase&) = delete;
  TimedPhase& operator=(const TimedPhase&) = delete;

 private:
  const Meter& meter_;
  const TracePhase phase_;
  const uint64_t tag_;
  const TimePoint began_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_METER_H_
