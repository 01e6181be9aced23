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
#include "csrc/device/device_access.h"
#include "csrc/device/memory.h"

namespace keras_ring {

// The collectives need all ranks. A rank that has joined uses memory of its
// own: it contributes the neutral element of the reduction, and receives
// results that nobody reads.
class JoinPlaceholders {
 public:
  JoinPlaceholders() = default;
  ~JoinPlaceholders();
  JoinPlaceholders(const JoinPlaceholders&) = delete;
  JoinPlaceholders& operator=(const JoinPlaceholders&) = delete;

  // Makes entries for all items of the command, with completions that do
  // nothing. The entries are valid while this object lives. `devices`: of the
  // kind of its tensors; null: they are in host memory.
  Status Make(const ExecuteCommand& command, TimePoint decided,
              DeviceAccess* devices, std::vector<TensorEntry>& entries);

 private:
  // Returns memory of the device.
  Result<void*> Reserve(size_t bytes);
  Result<void*> ReserveHost(size_t bytes);
  // Returns a tensor that changes nothing, for an item.
  Result<void*> Neutral(const Request& request, const TensorSpec& spec);

  Memory* device_ = nullptr;  // null: the host's memory
  std::vector<void*> of_device_;
  std::deque<ScratchBuffer> memory_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_JOIN_PLACEHOLDERS_H_
