// What is said of a simulated job on the command line, as NAME=VALUE.
#ifndef KERAS_RING_BENCHMARKS_SCALE_SETTINGS_H_
#define KERAS_RING_BENCHMARKS_SCALE_SETTINGS_H_

#include "csrc/testing/simulated_allreduce.h"

namespace keras_ring {

// Whether all words from argv[first] on are settings; else it says which there
// are. `runs` is how often a job with noise is simulated.
bool SetAll(int argc, char** argv, int first, SimulatedJob& job, int& runs);

}  // namespace keras_ring

#endif  // KERAS_RING_BENCHMARKS_SCALE_SETTINGS_H_
