// Event: a point in the work of a device.
#ifndef KERAS_RING_DEVICE_EVENT_H_
#define KERAS_RING_DEVICE_EVENT_H_

#include <memory>
#include <vector>

#include "csrc/base/status.h"

namespace keras_ring {

// Work that was given to a device runs after the call that gave it has
// returned. An event is reached when all work is done that was given to a
// stream of the device before the event was made. Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the calling thread until the event is reached. Fails if the device
  // has.
  virtual Status Wait() const = 0;
  // The driver's own event (CUevent), by which a stream can wait without any
  // thread; null if only a thread can wait.
  virtual void* native() const { return nullptr; }
};

using Events = std::vector<std::shared_ptr<const Event>>;

}  // namespace keras_ring

#endif  // KERAS_RING_DEVICE_EVENT_H_
