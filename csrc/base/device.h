// The device that holds the memory of a tensor.
#ifndef KERAS_RING_BASE_DEVICE_H_
#define KERAS_RING_BASE_DEVICE_H_

#include <cstdint>

namespace keras_ring {

// The values travel on the wire: append, never renumber.
enum class DeviceKind : uint8_t {
  kHost = 0,
  kCuda,
};
inline constexpr int kNumDeviceKinds = 2;

// "cpu", "gpu": as TensorFlow calls them.
inline const char* DeviceKindName(DeviceKind kind) {
  return kind == DeviceKind::kHost ? "cpu" : "gpu";
}

// Ranks agree on the kind only: ordinals differ between them.
struct Device {
  DeviceKind kind = DeviceKind::kHost;
  int ordinal = 0;
};

// Marks a point in the work of a device that runs asynchronously to its host.
class ReadyEvent {
 public:
  virtual ~ReadyEvent() = default;
  // Blocks until all work that was submitted to the device before the event was
  // made is done. Thread-safe.
  virtual void Wait() const = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_DEVICE_H_
