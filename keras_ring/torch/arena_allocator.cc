// PyTorch's allocator of host tensors, over the process's arena: so that the
// other ranks of the host can read tensors in place.
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <string>

#include "csrc/capi/keras_ring.h"

namespace keras_ring {
namespace {

// Smaller tensors are cheaper to copy than to look up, and an arena allocates
// whole pages.
constexpr size_t kMinArenaBytes = 32 << 10;

KrArena* arena = nullptr;

void Free(void* memory) {
  if (memory == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(memory);
  if (KrArenaContains(arena, memory)) {
    KrArenaRelease(arena, memory);
  } else {
    c10::free_cpu(memory);
  }
}

class ArenaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* memory = nullptr;
    if (bytes >= kMinArenaBytes) memory = KrArenaAllocate(arena, bytes);
    if (memory == nullptr) memory = c10::alloc_cpu(bytes);
    c10::profiledCPUMemoryReporter().New(memory, bytes);
    return {memory, memory, &Free, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// Above PyTorch's own, which have 0.
constexpr uint8_t kPriority = 100;

}  // namespace

// For keras_ring/core/native.py: returns null, or why tensors will not be in an
// arena. `job_size`: the number of ranks. To be called once per process.
// Tensors that exist already stay where they are.
extern "C" __attribute__((visibility("default"))) const char*
KerasRingInstallArena(int job_size) {
  static std::string why;
  KrStatus* const status = KrArenaCreate(job_size, &arena);
  if (status != nullptr) {
    why = KrStatusMessage(status);
    KrStatusFree(status);
    return why.c_str();
  }
  // Never freed: other threads may make tensors while the process ends.
  static auto* const allocator = new ArenaAllocator;
  c10::SetCPUAllocator(allocator, kPriority);
  return nullptr;
}

}  // namespace keras_ring
