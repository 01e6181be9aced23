// The backend for ranks on several hosts that share memory where they can.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_

#include "csrc/collective/backend.h"
#include "csrc/collective/hierarchy/host_stage.h"

namespace keras_ring {

// How much memory the ranks of a host share for it depends on the job alone.
HostStageOptions StageOptionsFor(int num_hosts);

extern const CollectiveBackend kHierarchyBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_
