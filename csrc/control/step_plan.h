// StepPlan: which tensors of a step share a bucket in every step.
#ifndef KERAS_RING_CONTROL_STEP_PLAN_H_
#define KERAS_RING_CONTROL_STEP_PLAN_H_

#include <vector>

#include "csrc/control/response_cache.h"

namespace keras_ring {

// Buckets of slots. Each is ascending, within the fusion threshold, and can
// share a collective. A slot is in at most one bucket.
using StepPlan = std::vector<std::vector<ResponseCache::Slot>>;

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_STEP_PLAN_H_
