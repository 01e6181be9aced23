// SharedMemory: pages that several processes of a host map.
#ifndef KERAS_RING_COMM_HOST_SHARED_MEMORY_H_
#define KERAS_RING_COMM_HOST_SHARED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

// A memfd has no name in any file system: it is gone with the last process
// that holds it, however that one dies. Pages are zero and cost nothing until
// they are touched.
class SharedMemory {
 public:
  SharedMemory() = default;
  // `name` shows in /proc/<pid>/maps only. Some systems refuse memfds. The
  // result is then an error, or an unnamed file in /dev/shm, whose pages are
  // all allocated at once: /dev/shm may be limited to 64 MiB, and touching a
  // page beyond that would kill the process.
  enum class Refused { kError, kFile };
  static Result<SharedMemory> Create(const char* name, size_t bytes,
                                     Refused refused = Refused::kError);
  // Maps memory that another process made. An error if it is smaller than
  // `bytes`, or could be shrunk: touching a page that is gone would kill this
  // process.
  enum class Access { kReadWrite, kRead };
  static Result<SharedMemory> Map(Socket descriptor, size_t bytes,
                                  Access access = Access::kReadWrite);

  SharedMemory(SharedMemory&& other) noexcept
      : descriptor_(std::move(other.descriptor_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  const Socket& descriptor() const { return descriptor_; }

 private:
  Status MapPages(size_t bytes, Access access);

  Socket descriptor_;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_SHARED_MEMORY_H_
