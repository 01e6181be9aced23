// RunPlans: the plans of all ranks of a group at once, without threads, in a
// random order of events.
#ifndef KERAS_RING_TESTING_PLAN_SIMULATION_H_
#define KERAS_RING_TESTING_PLAN_SIMULATION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/comm/transport/transport.h"

namespace keras_ring {

struct PlanSimulationOptions {
  uint64_t seed = 0;
  size_t max_bytes = 100;  // that move at a time
  // Bytes that may be under way between two ranks.
  size_t pipe_bytes = 1000;
};

// Moves a few bytes at a time on a link of its choice; now and then one link
// stands still until nothing else can move. plans[rank]. Whether all ranks came
// to their ends.
bool RunPlans(std::vector<SendReceivePlan>& plans,
              const PlanSimulationOptions& options = {});

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_PLAN_SIMULATION_H_
