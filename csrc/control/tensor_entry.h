// TensorEntry: one submitted operation, with its memory and its completion.
#ifndef KERAS_RING_CONTROL_TENSOR_ENTRY_H_
#define KERAS_RING_CONTROL_TENSOR_ENTRY_H_

#include <functional>
#include <memory>
#include <optional>

#include "csrc/base/clock.h"
#include "csrc/base/completion.h"
#include "csrc/base/small_vector.h"
#include "csrc/control/request.h"
#include "csrc/device/event.h"

namespace keras_ring {

struct TensorEntry {
  RequestPtr request;

  // The device that holds this rank's tensors; of the kind in the request.
  int device_ordinal = 0;
  // Once it is reached, the inputs have been written, and the outputs may be.
  // Null: that is so already.
  std::shared_ptr<const Event> ready;
  // The caller's stream, on which `ready` was recorded. What `allocate` returns
  // may be memory that earlier work of this stream still uses. None: it is not.
  std::optional<void*> stream;

  // One per tensor of the request. The memory stays valid until the completion
  // has fired; the completion's callback is a good place to own it.
  SmallVector<const void*> inputs;
  // Like inputs; an output may equal its input. Empty if the size of a result
  // differs from that of its tensor.
  SmallVector<void*> outputs;

  // Used if `outputs` is empty: returns memory for a result of `rows` rows.
  // Called once for each result, in order, by the thread that runs the bucket.
  // There is one result per tensor; an alltoall has one more: int64, how many
  // rows came from each rank.
  std::function<Result<void*>(int result, int64_t rows)> allocate;

  Completion completion;

  // Set by TensorQueue::Add.
  TimePoint submitted{};
  uint64_t flight = 0;  // see FlightRecorder
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_TENSOR_ENTRY_H_
