// JoinPlaceholders: lets a rank that has joined take part in the operations of
// the others.
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

// The collectives need all ranks. A rank that has joined uses memory of its
// own: it contributes the neutral element of the reduction, and receives
// results that nobody reads.
class JoinPlaceholders {
 public:
  // Makes entries for all items of the command, with completions that do
  // nothing. The entries are valid while this object lives.
  Status Make(const ExecuteCommand& command, TimePoint decided,
              std::vector<TensorEntry>& entries);

 private:
  Result<void*> Reserve(size_t bytes);

  std::deque<ScratchBuffer> memory_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_JOIN_PLACEHOLDERS_H_
