// ScratchBuffer: memory that is kept from one collective to the next.
#ifndef KERAS_RING_COLLECTIVE_SCRATCH_BUFFER_H_
#define KERAS_RING_COLLECTIVE_SCRATCH_BUFFER_H_

#include <cstddef>
#include <memory>
#include <new>
#include <string>

#include "csrc/base/status.h"

namespace keras_ring {

class ScratchBuffer {
 public:
  // Returns at least `bytes`, aligned to a cache line; the contents are
  // undefined. The address is valid until the next call.
  Result<void*> Reserve(size_t bytes) {
    if (bytes > capacity_) {
      // Freed first: the two need never exist at the same time.
      memory_.reset();
      capacity_ = 0;
      memory_.reset(::operator new(bytes, kAlignment, std::nothrow));
      if (memory_ == nullptr) {
        return ResourceExhaustedError("no memory for a buffer of " +
                                      std::to_string(bytes) + " bytes");
      }
      capacity_ = bytes;
    }
    return memory_.get();
  }

  size_t capacity() const { return capacity_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Delete {
    void operator()(void* memory) const {
      ::operator delete(memory, kAlignment);
    }
  };

  size_t capacity_ = 0;
  std::unique_ptr<void, Delete> memory_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SCRATCH_BUFFER_H_
