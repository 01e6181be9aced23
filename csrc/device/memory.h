// Memory: that of a device, or of the host, for code that serves both.
#ifndef KERAS_RING_DEVICE_MEMORY_H_
#define KERAS_RING_DEVICE_MEMORY_H_

#include <cstddef>

#include "csrc/base/status.h"

namespace keras_ring {

// Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  // Returns memory that is aligned for every dtype; for 0 bytes, any address.
  virtual Result<void*> Allocate(size_t bytes) = 0;
  // Waits for whatever still uses it.
  virtual void Free(void* memory) = 0;
  // Copy from and to host memory. Both block until the copy is done.
  virtual Status Write(void* to, const void* from_host, size_t bytes) = 0;
  virtual Status Read(void* to_host, const void* from, size_t bytes) = 0;
};

// That of this process.
Memory& HostMemory();

}  // namespace keras_ring

#endif  // KERAS_RING_DEVICE_MEMORY_H_
