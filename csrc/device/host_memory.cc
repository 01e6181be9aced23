#include <cstdlib>
#include <cstring>

#include "csrc/device/memory.h"

namespace keras_ring {
namespace {

class ProcessMemory final : public Memory {
 public:
  Result<void*> Allocate(size_t bytes) override {
    void* const memory = std::malloc(bytes > 0 ? bytes : 1);
    if (memory != nullptr) return memory;
    return ResourceExhaustedError("there are no " + std::to_string(bytes) +
                                  " bytes of memory left");
  }
  void Free(void* memory) override { std::free(memory); }
  Status Write(void* to, const void* from_host, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from_host, bytes);
    return OkStatus();
  }
  Status Read(void* to_host, const void* from, size_t bytes) override {
    return Write(to_host, from, bytes);
  }
};

}  // namespace

Memory& HostMemory() {
  static ProcessMemory* const memory = new ProcessMemory();
  return *memory;
}

}  // namespace keras_ring
