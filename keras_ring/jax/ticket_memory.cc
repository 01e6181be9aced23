// Where the tensors of JAX's collectives lie: in the process's arena, so that
// the other ranks of the host read them in place. JAX's own arrays lie
// elsewhere, since XLA has no allocator that could be replaced.
#include <atomic>
#include <cstdlib>
#include <string>

#include "csrc/capi/keras_ring.h"
#include "xla_ops/calls.h"

namespace keras_ring {
namespace {

// Smaller tensors are cheaper to copy than to look up, and an arena allocates
// whole pages.
constexpr size_t kMinArenaBytes = 32 << 10;
constexpr size_t kAlignment = 64;

std::atomic<KrArena*> arena{nullptr};

void* Allocate(size_t bytes) {
  void* memory = nullptr;
  if (arena != nullptr && bytes >= kMinArenaBytes) {
    memory = KrArenaAllocate(arena, bytes);
  }
  if (memory != nullptr) return memory;
  return posix_memalign(&memory, kAlignment, bytes) == 0 ? memory : nullptr;
}

void Release(void* memory) {
  if (arena != nullptr && KrArenaContains(arena, memory)) {
    KrArenaRelease(arena, memory);
  } else {
    std::free(memory);
  }
}

}  // namespace

const TicketMemory& MemoryOfTickets() {
  static constexpr TicketMemory kMemory = {&Allocate, &Release};
  return kMemory;
}

// For keras_ring/core/native.py: returns null, or why tensors will not be in an
// arena. `job_size`: the number of ranks. To be called once per process.
extern "C" __attribute__((visibility("default"))) const char*
KerasRingInstallArena(int job_size) {
  static std::string why;
  KrArena* created = nullptr;
  KrStatus* const status = KrArenaCreate(job_size, &created);
  if (status != nullptr) {
    why = KrStatusMessage(status);
    KrStatusFree(status);
    return why.c_str();
  }
  arena = created;
  return nullptr;
}

}  // namespace keras_ring
