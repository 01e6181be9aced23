// A training step's allreduces in simulated jobs, and repetitions with noise.
#ifndef KERAS_RING_BENCHMARKS_SIMULATED_STEP_H_
#define KERAS_RING_BENCHMARKS_SIMULATED_STEP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "csrc/testing/simulated_allreduce.h"

namespace keras_ring {

struct Sum {
  double seconds = 0;
  double bound = 0;
  int64_t sends = 0;
  int64_t bytes = 0;
  size_t memory = 0;

  void Add(const SimulatedTime& time, int64_t times) {
    seconds += times * time.seconds;
    bound += times * time.bound;
    sends += times * time.sends;
    bytes += times * time.bytes;
    memory = std::max(memory, time.memory);
  }
};

// Ends the program if the plans stand still.
SimulatedTime Simulate(const SimulatedJob& job, size_t bytes);

// Bucket after bucket, as the coordinator makes them of gradients that come
// faster than they are reduced: planned ones at first, as soon as each is
// complete, and then larger ones, of what has become complete meanwhile.
// Only the first is waited for by ranks that come late from their computation:
// then all are there.
Sum StepOf(SimulatedJob job, size_t bytes);

// What the job with other noise each time takes, on all processors of this
// machine.
std::vector<double> Repeated(
    const std::function<double(const SimulatedJob&)>& simulate,
    const SimulatedJob& job, int runs);

// The value below which `percent` of them lie.
double Percentile(std::vector<double> values, int percent);

}  // namespace keras_ring

#endif  // KERAS_RING_BENCHMARKS_SIMULATED_STEP_H_
