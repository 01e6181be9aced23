// TensorFlow's allocator of CPU tensors, over the process's arena: so that the
// other ranks of the host can read tensors in place.
#include <cstdlib>
#include <string>

#include "csrc/capi/keras_ring.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/allocator_registry.h"

namespace keras_ring {
namespace {

// Smaller tensors are cheaper to copy than to look up, and an arena allocates
// whole pages.
constexpr size_t kMinArenaBytes = 32 << 10;

void* AllocateElsewhere(size_t alignment, size_t bytes) {
  void* memory = nullptr;
  const size_t least = std::max(alignment, sizeof(void*));
  return posix_memalign(&memory, least, bytes) == 0 ? memory : nullptr;
}

class ArenaAllocator final : public tsl::Allocator {
 public:
  explicit ArenaAllocator(KrArena* arena) : arena_(arena) {}

  std::string Name() override { return "keras_ring arena"; }

  void* AllocateRaw(size_t alignment, size_t num_bytes) override {
    if (num_bytes >= kMinArenaBytes && alignment <= kPageBytes) {
      void* block = KrArenaAllocate(arena_, num_bytes);
      if (block != nullptr) return block;
    }
    return AllocateElsewhere(alignment, num_bytes);
  }

  void DeallocateRaw(void* memory) override {
    if (KrArenaContains(arena_, memory)) {
      KrArenaRelease(arena_, memory);
    } else {
      std::free(memory);
    }
  }

  tsl::AllocatorMemoryType GetMemoryType() const override {
    return tsl::AllocatorMemoryType::kHostPageable;
  }

 private:
  static constexpr size_t kPageBytes = 4096;
  KrArena* const arena_;
};

// For programs that ask TensorFlow to put an allocator of its own on top of
// this one (TF_CPU_ALLOCATOR_USE_BFC): they get the same as without us.
class PlainSubAllocator final : public tsl::SubAllocator {
 public:
  PlainSubAllocator() : SubAllocator({}, {}) {}
  void* Alloc(size_t alignment, size_t num_bytes,
              size_t* bytes_received) override {
    *bytes_received = num_bytes;
    return AllocateElsewhere(alignment, num_bytes);
  }
  void Free(void* memory, size_t) override { std::free(memory); }
  bool SupportsCoalescing() const override { return false; }
  tsl::AllocatorMemoryType GetMemoryType() const override {
    return tsl::AllocatorMemoryType::kHostPageable;
  }
};

class ArenaAllocatorFactory final : public tsl::AllocatorFactory {
 public:
  explicit ArenaAllocatorFactory(KrArena* arena) : arena_(arena) {}

  tsl::Allocator* CreateAllocator() override {
    return new ArenaAllocator(arena_);
  }
  tsl::SubAllocator* CreateSubAllocator(int) override {
    return new PlainSubAllocator;
  }

 private:
  KrArena* const arena_;
};

// The registry ends the process if a factory comes after the first tensor, and
// offers no way to ask. The standard allows private members to be named in an
// explicit instantiation.
template <typename Tag, typename Tag::Member kMember>
struct Reveal {
  friend typename Tag::Member Revealed(Tag) { return kMember; }
};
struct FirstAllocMade {
  using Member = bool tsl::AllocatorFactoryRegistry::*;
  friend Member Revealed(FirstAllocMade);
};
template struct Reveal<FirstAllocMade,
                       &tsl::AllocatorFactoryRegistry::first_alloc_made_>;

// Above TensorFlow's own priorities (0 to 200).
constexpr int kPriority = 500;

}  // namespace

// For keras_ring/core/native.py: returns null, or why TensorFlow's tensors
// will not be in an arena. `job_size`: the number of ranks. To be called once
// per process, before the first tensor is made, and not while another thread
// might make it.
extern "C" __attribute__((visibility("default"))) const char*
KerasRingInstallArena(int job_size) {
  static std::string why;
  tsl::AllocatorFactoryRegistry* registry =
      tsl::AllocatorFactoryRegistry::singleton();
  if (registry->*Revealed(FirstAllocMade())) {
    return "TensorFlow has made tensors already";
  }
  KrArena* arena = nullptr;
  KrStatus* const status = KrArenaCreate(job_size, &arena);
  if (status != nullptr) {
    why = KrStatusMessage(status);
    KrStatusFree(status);
    return why.c_str();
  }
  registry->Register(__FILE__, __LINE__, "keras_ring arena", kPriority,
                     new ArenaAllocatorFactory(arena));
  return nullptr;
}

}  // namespace keras_ring
