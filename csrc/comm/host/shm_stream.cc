#include "csrc/comm/host/shm_stream.h"

#include <algorithm>
#include <cstring>

namespace keras_ring {

size_t ShmStream::Write(std::string_view data) {
  const uint64_t end = written.load(std::memory_order_relaxed);
  auto room = [&]() -> size_t {
    const uint64_t held = end - read.load(std::memory_order_seq_cst);
    // A reader gone mad must not make this rank write behind the ring.
    return held <= kCapacity ? kCapacity - held : 0;
  };
  if (room() < data.size()) {
    // Either the reader sees the flag after its next read, or that read has
    // been and there is room: all four steps are in one order.
    writer_waits.store(1, std::memory_order_seq_cst);
  }
  const size_t size = std::min<size_t>(room(), data.size());
  if (size == data.size()) writer_waits.store(0, std::memory_order_relaxed);
  if (size == 0) return 0;
  const size_t at = end % kCapacity;
  const size_t first = std::min(size, kCapacity - at);
  std::memcpy(bytes + at, data.data(), first);
  std::memcpy(bytes, data.data() + first, size - first);
  written.store(end + size, std::memory_order_release);
  return size;
}

}  // namespace keras_ring
