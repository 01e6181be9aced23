// The process's arena: one, because TensorFlow has one allocator for tensors on
// CPUs, which must be chosen before the first of them is made.
#ifndef KERAS_RING_RUNTIME_PROCESS_ARENA_H_
#define KERAS_RING_RUNTIME_PROCESS_ARENA_H_

#include <cstdint>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/comm/host/arena.h"

namespace keras_ring {

// Of how many ranks the tensors should lie in arenas, as the environment has
// it; 0: of none. What is wrong with the options is said by the start of the
// job.
int ZeroCopyRanks(int job_size);

// Makes the arena, if there is none yet. It stays to the end of the process:
// tensors may outlive every job. Fails where a page that the system cannot give
// would end the process instead of an allocation. `job_size`: the number of
// ranks.
Status CreateProcessArena(int job_size);

// How long the arena is. Addresses, not memory: enough that pieces of free
// memory which nothing fits into never matter. But each rank of a host maps the
// arenas of all of them, of which there are `job_size` at most, and addresses
// are not without end.
uint64_t ProcessArenaBytes(uint64_t memory_bytes, int job_size);

// Null if none was made.
std::shared_ptr<Arena> ProcessArena();

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PROCESS_ARENA_H_
