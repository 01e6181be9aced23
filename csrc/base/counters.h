// Counters: what a runtime has done, readable from any thread at any time.
#ifndef KERAS_RING_BASE_COUNTERS_H_
#define KERAS_RING_BASE_COUNTERS_H_

#include <atomic>
#include <cstdint>
#include <string_view>
#include <vector>

namespace keras_ring {

// Relaxed atomics: each number is exact, but together they are no snapshot.
// DescribeCounters() says what each one counts.
struct Counters {
  using Count = std::atomic<uint64_t>;

  Count control_bytes_sent{0};
  Count control_bytes_received{0};
  Count control_messages_sent{0};
  Count data_bytes_sent{0};
  Count data_bytes_received{0};
  Count buckets{0};
  Count entries{0};
  Count cache_hits{0};
  Count cache_misses{0};
  Count last_buckets{0};
  Count late_ns{0};
  Count rejected_connections{0};
  Count steps{0};
  Count step_ns{0};
  Count step_bytes{0};
  Count step_tensors{0};

  // Where the time of the operations goes: see TracePhase.
  Count negotiate_ns{0};
  Count queue_ns{0};
  Count execute_ns{0};
  Count wait_ns{0};
  Count pack_ns{0};
  Count reduce_ns{0};
  Count unpack_ns{0};
  Count callback_ns{0};

  // The current state.
  Count pending{0};
  Count submitted_ns{0};
  Count done_ns{0};
  Count submitted_execute_ns{0};
  Count began_ns{0};
  Count activity{0};
  Count activity_ns{0};
  Count epoch{0};

  // Reported by the program: only it knows these.
  Count fit_steps{0};
  Count samples{0};
  Count fit_ns{0};
  Count data_wait_ns{0};
  Count checkpoint_ns{0};
  Count evaluate_ns{0};
};

struct CounterDescription {
  const char* name;
  const char* unit;
  const char* meaning;
  Counters::Count Counters::*count;
};

// One entry per counter: the source of kr.metrics() and docs/metrics.md.
const std::vector<CounterDescription>& DescribeCounters();
// Goes on counting from where another runtime of the same program has ended.
// Operations that are under way there are not carried over.
void CarryOver(const Counters& ended, Counters& counters);
// Returns null if no counter has this name.
Counters::Count* FindCounter(Counters& counters, std::string_view name);

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_COUNTERS_H_
