// The process's arena: one, because TensorFlow has one allocator for tensors on
// CPUs, which must be chosen before the first of them is made.
#ifndef KERAS_RING_RUNTIME_PROCESS_ARENA_H_
#define KERAS_RING_RUNTIME_PROCESS_ARENA_H_

#include <memory>

#include "csrc/base/status.h"
#include "csrc/comm/arena.h"

namespace keras_ring {

// Makes the arena, if there is none yet. It stays to the end of the process:
// tensors may outlive every job. Fails where a page that the system cannot give
// would end the process instead of an allocation.
Status CreateProcessArena();

// Null if none was made.
std::shared_ptr<Arena> ProcessArena();

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PROCESS_ARENA_H_
