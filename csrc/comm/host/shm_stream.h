// ShmStream: a stream of bytes from one rank to another of the same host,
// through memory that both map.
#ifndef KERAS_RING_COMM_HOST_SHM_STREAM_H_
#define KERAS_RING_COMM_HOST_SHM_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "csrc/base/status.h"

namespace keras_ring {

// A ring buffer with one writer and one reader. It behaves like a non-blocking
// socket: a write takes what fits, a read what is there. Zero pages are an
// empty stream.
//
// `written` and `read` only grow; their difference is what the ring holds. The
// writer owns one and the reader the other, so neither needs a lock: a byte is
// in place before `written` covers it (release, acquire), and out of use before
// `read` does.
struct ShmStream {
  static constexpr size_t kCapacity = 64 << 10;

  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  // Set by a writer that found the ring full and wants its bell rung.
  alignas(64) std::atomic<uint32_t> writer_waits{0};
  alignas(64) char bytes[kCapacity];

  // --- The writer ---

  // Returns how many bytes were taken.
  size_t Write(std::string_view data);

  // --- The reader ---

  bool empty() const {
    return written.load(std::memory_order_acquire) ==
           read.load(std::memory_order_relaxed);
  }
  // Passes everything that is there to `take` (in at most two pieces) and
  // empties the ring. Returns the number of bytes; an error if the indices are
  // inconsistent, which only a faulty writer can cause.
  template <typename Take>
  Result<size_t> Read(Take take) {
    const uint64_t begin = read.load(std::memory_order_relaxed);
    const uint64_t size = written.load(std::memory_order_acquire) - begin;
    if (size > kCapacity) return InternalError("a broken stream");
    if (size == 0) return size_t{0};
    const size_t at = begin % kCapacity;
    const size_t first = size < kCapacity - at ? size : kCapacity - at;
    take(std::string_view(bytes + at, first));
    if (first < size) take(std::string_view(bytes, size - first));
    read.store(begin + size, std::memory_order_seq_cst);
    return size;
  }
  // Returns whether the writer wants to hear that there is room again, and
  // clears its request.
  bool TakeWriterWaits() {
    return writer_waits.load(std::memory_order_seq_cst) != 0 &&
           writer_waits.exchange(0) != 0;
  }
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_SHM_STREAM_H_
