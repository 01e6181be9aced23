// DeviceArguments: a call whose tensors are in host memory, as one with tensors
// in the memory of a device.
//
// So one suite serves the collectives of all kinds of memory.
#ifndef KERAS_RING_TESTING_DEVICE_ARGUMENTS_H_
#define KERAS_RING_TESTING_DEVICE_ARGUMENTS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "csrc/collective/collective.h"
#include "csrc/device/memory.h"

namespace keras_ring {

// Device memory for the tensors of one rank's calls, one call at a time: a
// region from which tensors are cut, as a framework's allocator does.
class DeviceRegion {
 public:
  // `skew`: what is added to the address of each tensor [bytes]; a multiple of
  // 8 keeps every dtype aligned. `memory` must outlive the object.
  DeviceRegion(Memory& memory, size_t bytes, size_t skew);
  ~DeviceRegion();
  DeviceRegion(const DeviceRegion&) = delete;
  DeviceRegion& operator=(const DeviceRegion&) = delete;

  Memory& memory() const { return memory_; }
  void Reset() { used_ = 0; }
  char* Cut(size_t bytes);

 private:
  Memory& memory_;
  const size_t bytes_;
  const size_t skew_;
  char* begin_ = nullptr;
  size_t used_ = 0;
};

class DeviceArguments {
 public:
  // Copies what the tensors of `args` hold to the device, outputs included.
  // `rank`: who makes the call.
  DeviceArguments(const CollectiveArgs& args, int rank, DeviceRegion& region);

  const CollectiveArgs& args() const { return there_; }
  // Copies the outputs back.
  void Finish();

 private:
  // Host memory, and where it is on the device.
  struct Piece {
    char* host;
    size_t bytes;
    char* there;
  };
  // Names what a call uses; overlapping pieces become one.
  void Use(const void* host, size_t bytes);
  template <typename Pointer>
  void Move(Pointer& pointer) const;

  DeviceRegion& region_;
  CollectiveArgs there_;
  std::vector<Piece> pieces_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_DEVICE_ARGUMENTS_H_
