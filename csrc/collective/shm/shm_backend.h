// The backend for shared memory.
#ifndef KERAS_RING_COLLECTIVE_SHM_SHM_BACKEND_H_
#define KERAS_RING_COLLECTIVE_SHM_SHM_BACKEND_H_

#include "csrc/collective/backend.h"
#include "csrc/collective/shm/chunk_barrier.h"

namespace keras_ring {

// Returns how the ranks of a host wait for each other.
ChunkBarrierOptions BarrierOptionsOf(const BackendDeps& deps);

extern const CollectiveBackend kShmBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_SHM_BACKEND_H_
