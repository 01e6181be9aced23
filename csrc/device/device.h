// The device that holds the memory of a tensor.
#ifndef KERAS_RING_DEVICE_DEVICE_H_
#define KERAS_RING_DEVICE_DEVICE_H_

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
  switch (kind) {
    case DeviceKind::kHost:
      return "cpu";
    case DeviceKind::kCuda:
      return "gpu";
  }
  return "unknown";
}

// Ranks agree on the kind only: ordinals differ between them.
struct Device {
  DeviceKind kind = DeviceKind::kHost;
  int ordinal = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_DEVICE_DEVICE_H_
