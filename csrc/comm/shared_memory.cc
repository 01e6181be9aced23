#include "csrc/comm/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace keras_ring {

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<SharedMemory> SharedMemory::Create(const char* name, size_t bytes) {
  SharedMemory memory;
  memory.descriptor_ =
      Socket(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = memory.descriptor_.fd();
  if (fd < 0)
    return ResourceExhaustedError("memfd_create: " + ErrnoText(errno));
  // It has no name, but whoever is handed a descriptor of it could otherwise
  // open it again with more rights: it begins with those of everybody.
  if (fchmod(fd, 0600) != 0) {
    return InternalError("fchmod of a memfd: " + ErrnoText(errno));
  }
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return ResourceExhaustedError("ftruncate to " + std::to_string(bytes) +
                                  " bytes: " + ErrnoText(errno));
  }
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ResourceExhaustedError("sealing a memfd: " + ErrnoText(errno));
  }
  KR_RETURN_IF_ERROR(memory.MapPages(bytes, Access::kReadWrite));
  return memory;
}

Result<SharedMemory> SharedMemory::Map(Socket descriptor, size_t bytes,
                                       Access access) {
  struct stat facts = {};
  if (fstat(descriptor.fd(), &facts) != 0) {
    return InvalidArgumentError("fstat: " + ErrnoText(errno));
  }
  const int seals = fcntl(descriptor.fd(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<uint64_t>(facts.st_size) < bytes) {
    return InvalidArgumentError("not a sealed segment of " +
                                std::to_string(bytes) + " bytes");
  }
  SharedMemory memory;
  memory.descriptor_ = std::move(descriptor);
  KR_RETURN_IF_ERROR(memory.MapPages(bytes, access));
  return memory;
}

Status SharedMemory::MapPages(size_t bytes, Access access) {
  const int protection =
      access == Access::kRead ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE,
                    descriptor_.fd(), 0);
  if (data == MAP_FAILED) {
    return ResourceExhaustedError("mapping " + std::to_string(bytes) +
                                  " bytes: " + ErrnoText(errno));
  }
  data_ = static_cast<char*>(data);
  bytes_ = bytes;
  // A forked child has no part in the job. Not there: it cannot harm it.
  (void)madvise(data, bytes, MADV_DONTFORK);
  // The system writes a shared mapping to a core dump whole, and allocates the
  // pages of a sparse one that nobody has touched. That is more than the host
  // has.
  (void)madvise(data, bytes, MADV_DONTDUMP);
  return OkStatus();
}

}  // namespace keras_ring
