// Shared memory, as a backend.
#ifndef KERAS_RING_COLLECTIVE_SHM_SHM_BACKEND_H_
#define KERAS_RING_COLLECTIVE_SHM_SHM_BACKEND_H_

#include "csrc/collective/backend.h"

namespace keras_ring {

extern const CollectiveBackend kShmBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_SHM_BACKEND_H_
