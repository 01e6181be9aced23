// StreamCopy for instruction sets with stores past the caches. See
// kernels_inl.h.
#ifndef KERAS_RING_COLLECTIVE_STREAM_COPY_INL_H_
#define KERAS_RING_COLLECTIVE_STREAM_COPY_INL_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace keras_ring {
namespace {

// Isa::StreamLine copies a line of the cache to one.
template <typename Isa>
void StreamLines(void* to, const void* from, size_t bytes) {
  constexpr size_t kLine = 64;
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
  // Such stores are not ordered with others, as who reads this will expect.
  _mm_sfence();
  std::memcpy(out + done, in + done, bytes - done);
}

}  // namespace
}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_STREAM_COPY_INL_H_
