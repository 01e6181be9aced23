// StreamCopy for instruction sets with stores past the caches. See
// kernels_inl.h.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_STREAM_COPY_INL_H_
#define KERAS_RING_COLLECTIVE_KERNELS_STREAM_COPY_INL_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/collective/kernels/lanes_inl.h"

namespace keras_ring {
namespace {

template <typename Isa>
void StreamLines(void* to, const void* from, size_t bytes) {
  // Too small for a whole line, or null.
  if (bytes < 2 * kLine) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  const size_t head = -reinterpret_cast<uintptr_t>(out) % kLine;
  std::memcpy(out, in, head);
  size_t done = head;
  for (; bytes - done >= kLine; done += kLine) {
    Isa::StreamLine(out + done, in + done);
  }
  Isa::EndStream();
  std::memcpy(out + done, in + done, bytes - done);
}

}  // namespace
}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_STREAM_COPY_INL_H_
