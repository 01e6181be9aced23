// JoinPlaceholders: how a rank that has joined takes part in what the others
// do.
#ifndef KERAS_RING_RUNTIME_JOIN_PLACEHOLDERS_H_
#define KERAS_RING_RUNTIME_JOIN_PLACEHOLDERS_H_

#include <cstddef>
#include <deque>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/status.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/control/decision.h"
#include "csrc/control/tensor_entry.h"

namespace keras_ring {

// The collectives need all ranks. One that has joined stands in with memory of
// its own, which holds the neutral element of the reduction, and takes what
// nobody will read.
class JoinPlaceholders {
 public:
  // Entries for all items of the command, with completions that do nothing.
  // They may be used while this object lives.
  Status Make(const ExecuteCommand& command, TimePoint decided,
              std::vector<TensorEntry>& entries);

 private:
  Result<void*> Reserve(size_t bytes);

  std::deque<ScratchBuffer> memory_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_JOIN_PLACEHOLDERS_H_
