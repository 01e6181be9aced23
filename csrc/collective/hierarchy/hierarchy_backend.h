// The backend for ranks on several hosts that share memory where they can.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_

#include "csrc/collective/backend.h"

namespace keras_ring {

extern const CollectiveBackend kHierarchyBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHY_BACKEND_H_
