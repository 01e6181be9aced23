// The process's arena: only one, because TensorFlow has one allocator for CPU
// tensors, which must be chosen before the first tensor is made.
#ifndef KERAS_RING_RUNTIME_PROCESS_ARENA_H_
#define KERAS_RING_RUNTIME_PROCESS_ARENA_H_

#include <cstdint>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/comm/host/arena.h"

namespace keras_ring {

// Returns the number of ranks whose tensors should be in arenas, according to
// the environment; 0 for none. Invalid options are reported by the start of the
// job.
int ZeroCopyRanks(int job_size);

// Creates the arena, if there is none yet. It exists until the end of the
// process: tensors may outlive every job. Fails if a page that the system
// cannot provide would kill the process instead of failing an allocation.
// `job_size`: the number of ranks.
Status CreateProcessArena(int job_size);

// Returns the length of the arena. It counts addresses, not memory: enough that
// fragmentation never matters. But each rank of a host maps the arenas of all
// of its ranks, at most `job_size`, and the address space is limited.
uint64_t ProcessArenaBytes(uint64_t memory_bytes, int job_size);

// Returns null if none was created.
std::shared_ptr<Arena> ProcessArena();

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PROCESS_ARENA_H_
