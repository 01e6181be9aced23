// DeviceAccess: the devices of one kind, as this process uses them.
#ifndef KERAS_RING_DEVICE_DEVICE_ACCESS_H_
#define KERAS_RING_DEVICE_DEVICE_ACCESS_H_

#include <memory>

#include "csrc/base/status.h"
#include "csrc/device/event.h"
#include "csrc/device/memory.h"

namespace keras_ring {

// A device is opened when it is first asked for, as that takes a while, and
// most jobs have none. Thread-safe.
class DeviceAccess {
 public:
  virtual ~DeviceAccess() = default;
  // Returns why this process can use no device at all. Uses none.
  virtual Status CheckAny() = 0;
  // Returns why this process cannot use a device.
  virtual Status Check(int ordinal) = 0;
  // Returns an event that is reached once all is done that the stream was given
  // so far. `stream`: the driver's own (CUstream); null: its default stream.
  virtual Result<std::shared_ptr<const Event>> Record(int ordinal,
                                                      void* stream) = 0;
  virtual Result<Memory*> MemoryOf(int ordinal) = 0;
  // The device that this rank uses where nobody says which: that of its last
  // tensor, or the first.
  virtual int UsualOrdinal() const = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_DEVICE_DEVICE_ACCESS_H_
