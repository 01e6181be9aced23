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
  double send_byte = 0.1e-9;     // of a processor, sent
  double receive_byte = 0.1e-9;  // of a processor, received
  double memory_byte = 0.05e-9;  // of a thread, read or written
  // Of all memory of a host, which its ranks share with each other and with
  // what else there is. 0: threads do not wait for each other.
  double host_memory_byte = 0;
  double host_sync = 2e-6;    // until a rank's step is seen by the others
  int shared_processors = 0;  // see NetworkModel
  bool io_threads = false;    // likewise
  // Whether each rank has another processor for what it reads and writes on its
  // host, of large buckets.
  bool helper_thread = true;
  int rack_hosts = 0;           // see NetworkModel
  bool racks_in_order = true;   // likewise
  double oversubscription = 1;  // likewise
  // What interrupts each processor. The ranks of a host wait for each other at
  // each chunk, so what interrupts one of them holds up all.
  NoiseModel noise;
  uint64_t seed = 1;
  // Seconds of computation before the allreduce, from which ranks come at
  // different times, by the noise; not counted.
  double compute = 0;
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
