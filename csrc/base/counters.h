// Counters: what a runtime has done, readable from any thread at any time.
#ifndef KERAS_RING_BASE_COUNTERS_H_
#define KERAS_RING_BASE_COUNTERS_H_

#include <atomic>
#include <cstdint>

namespace keras_ring {

// Relaxed atomics: each number is exact, the set of them is not a snapshot.
struct Counters {
  using Count = std::atomic<uint64_t>;

  Count control_bytes_sent{0};
  Count control_bytes_received{0};
  Count control_messages_sent{0};
  Count data_bytes_sent{0};
  Count data_bytes_received{0};
  // Decisions (buckets) executed, and the tensor entries in them.
  Count buckets{0};
  Count entries{0};
  Count cache_hits{0};
  Count cache_misses{0};
  Count rejected_connections{0};
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_COUNTERS_H_
