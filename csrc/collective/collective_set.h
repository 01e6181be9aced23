// CollectiveSet: the collectives of a runtime, and the choice among them for a
// call.
#ifndef KERAS_RING_COLLECTIVE_COLLECTIVE_SET_H_
#define KERAS_RING_COLLECTIVE_COLLECTIVE_SET_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/device/device.h"
#include "csrc/device/device_access.h"

namespace keras_ring {

// The collectives must outlive it.
class CollectiveSet {
 public:
  CollectiveSet() = default;
  // For a runtime that has tensors in host memory only.
  CollectiveSet(Collective& host) {  // NOLINT(google-explicit-constructor)
    Add(DeviceKind::kHost, host);
  }

  // To be called once for each kind of device. `devices`: of the kind; null for
  // the host.
  void Add(DeviceKind kind, Collective& collective,
           DeviceAccess* devices = nullptr) {
    of_kind_[static_cast<int>(kind)] = &collective;
    devices_[static_cast<int>(kind)] = devices;
  }
  // Returns the collective for tensors on that kind of device; null if there is
  // none.
  Collective* Find(DeviceKind kind) const {
    return of_kind_[static_cast<int>(kind)];
  }
  // Returns the devices of that kind; null for the host, and if none are
  // served.
  DeviceAccess* DevicesOf(DeviceKind kind) const {
    return devices_[static_cast<int>(kind)];
  }
  // Returns the collective for a call: the error says which kinds are served,
  // or why the device cannot be used.
  Result<Collective*> For(Device device) const {
    if (Collective* found = Find(device.kind)) {
      DeviceAccess* const devices = DevicesOf(device.kind);
      if (devices == nullptr) return found;
      const Status usable = devices->Check(device.ordinal);
      if (usable.ok()) return found;
      return InvalidArgumentError(
          std::string("its tensors are said to be in the memory of ") +
          DeviceKindName(device.kind) + ":" + std::to_string(device.ordinal) +
          ", but " + usable.message());
    }
    std::string served;
    for (int kind = 0; kind < kNumDeviceKinds; ++kind) {
      if (of_kind_[kind] == nullptr) continue;
      if (!served.empty()) served += " and ";
      served += DeviceKindName(static_cast<DeviceKind>(kind));
    }
    return InvalidArgumentError(
        std::string("its tensors are in the memory of ") +
        DeviceKindName(device.kind) + ":" + std::to_string(device.ordinal) +
        ", and the collectives of this job serve tensors in " + served +
        " memory; copy them there first");
  }

  // Returns an event of that device, see DeviceAccess; null for the host, whose
  // memory is ready.
  Result<std::shared_ptr<const Event>> Record(Device device,
                                              void* stream) const {
    KR_RETURN_IF_ERROR(For(device).status());
    DeviceAccess* const devices = DevicesOf(device.kind);
    if (devices == nullptr) return std::shared_ptr<const Event>();
    return devices->Record(device.ordinal, stream);
  }

  // The tunables of all collectives; see Collective. One that several
  // collectives have appears several times.
  std::vector<TunableRange> Tunables() const {
    std::vector<TunableRange> all;
    for (const Collective* one : of_kind_) {
      if (one == nullptr) continue;
      const std::vector<TunableRange> own = one->Tunables();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  void Tune(Tunable tunable, int64_t value) const {
    for (Collective* one : of_kind_) {
      if (one != nullptr) one->Tune(tunable, value);
    }
  }
  void PeerGone(int rank) const {
    for (Collective* one : of_kind_) {
      if (one != nullptr) one->PeerGone(rank);
    }
  }
  void Abort(const Status& cause) const {
    for (Collective* one : of_kind_) {
      if (one != nullptr) one->Abort(cause);
    }
  }

 private:
  std::array<Collective*, kNumDeviceKinds> of_kind_{};
  std::array<DeviceAccess*, kNumDeviceKinds> devices_{};
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_COLLECTIVE_SET_H_
