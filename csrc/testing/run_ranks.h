// RunRanks: a job in one process, with a thread per rank.
#ifndef KERAS_RING_TESTING_RUN_RANKS_H_
#define KERAS_RING_TESTING_RUN_RANKS_H_

#include <chrono>
#include <functional>

namespace keras_ring {

// Calls function(rank) for each rank of [0, size) on a thread of its own, which
// an earlier call may have used, and returns when all have returned. If some
// have not within `limit`, aborts the process with a message that names them: a
// hang must end the test, and a thread cannot be ended. Not for the child of a
// fork.
void RunRanks(int size, const std::function<void(int rank)>& function,
              std::chrono::seconds limit = std::chrono::seconds(60));

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_RUN_RANKS_H_
