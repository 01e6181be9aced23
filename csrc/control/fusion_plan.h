// FusionPlan: which agreed requests share one collective.
#ifndef KERAS_RING_CONTROL_FUSION_PLAN_H_
#define KERAS_RING_CONTROL_FUSION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/control/request.h"

namespace keras_ring {

// Returns whether two requests fit into one collective.
bool MayShare(const Request& a, const Request& b);

// Takes the next bucket: the first request, and every later one that may share
// its collective and fits under `threshold` bytes together with those taken
// (look-ahead: one that does not fit or match does not end the search).
// Returns ascending indices into `requests`; at least one, also when the first
// alone is above the threshold. `requests` must not be empty.
std::vector<size_t> NextBucket(const std::vector<const Request*>& requests,
                               int64_t threshold);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_FUSION_PLAN_H_
