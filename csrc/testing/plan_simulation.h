// RunPlans: runs the plans of all ranks of a group in one thread, in a random
// order of events.
#ifndef KERAS_RING_TESTING_PLAN_SIMULATION_H_
#define KERAS_RING_TESTING_PLAN_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/comm/transport/transport.h"

namespace keras_ring {

struct PlanSimulationOptions {
  uint64_t seed = 0;
  size_t max_bytes = 100;    // the most that move at a time
  size_t pipe_bytes = 1000;  // the most that are under way between two ranks
};

// Moves a few bytes at a time, on a link that it draws. From time to time one
// link stops until nothing else can move. `plans`: by rank. Returns whether all
// plans were completed.
bool RunPlans(std::vector<SendReceivePlan>& plans,
              const PlanSimulationOptions& options = {});

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_PLAN_SIMULATION_H_
