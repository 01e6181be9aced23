// SimulateAllreduce: how long an allreduce takes on hosts that are not there.
#ifndef KERAS_RING_TESTING_SIMULATED_ALLREDUCE_H_
#define KERAS_RING_TESTING_SIMULATED_ALLREDUCE_H_

#include <cstddef>
#include <cstdint>

#include "csrc/collective/net/cost_model.h"
#include "csrc/testing/network_simulation.h"

namespace keras_ring {

// A job of equal hosts. Seconds, and seconds per byte.
struct SimulatedJob {
  int num_hosts = 2;
  int ranks_per_host = 1;
  double latency = 10e-6;        // between hosts
  double host_byte = 8 / 100e9;  // of a host's interface, in each direction
  double message = 2e-6;         // of a processor, for a send or a receive
  double copy_byte = 0.1e-9;     // of a processor, sent or received
  double memory_byte = 0.05e-9;  // of a rank, read or written
  double host_sync = 2e-6;       // until a rank's step is seen by the others
  int shared_processors = 0;     // see NetworkModel
  bool io_threads = false;       // likewise
  // Whether each rank has another processor for what it reads and writes on its
  // host, of large buckets.
  bool helper_thread = true;
};

struct SimulatedTime {
  bool ended = false;  // else it stood still
  double seconds = 0;
  double bound = 0;              // that the interfaces set
  int64_t sends = 0;             // of a rank
  int64_t bytes = 0;             // that a rank sends
  size_t memory = 0;             // of a rank: slots and scratch
  double processor_seconds = 0;  // of all ranks
};

// Of one bucket of float32. By symmetry all lanes do the same, so one of them
// is simulated, with its share of its host's interface and memory.
SimulatedTime SimulateAllreduce(const SimulatedJob& job, size_t bytes);

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_SIMULATED_ALLREDUCE_H_
