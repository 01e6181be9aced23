#include "csrc/comm/host/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace keras_ring {
namespace {

// Added in Linux 6.3; older headers lack it.
constexpr unsigned kNoExecSeal = 8;

constexpr char kFileSystem[] = "/dev/shm";

Socket NewMemfd(const char* name) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  // Where vm.memfd_noexec is 2, memfds need this flag; an older kernel does not
  // know it.
  Socket memfd(memfd_create(name, kFlags | kNoExecSeal));
  if (!memfd.valid()) memfd = Socket(memfd_create(name, kFlags));
  return memfd;
}

Status Prepare(const Socket& memfd, size_t bytes) {
  const int fd = memfd.fd();
  // It has no name, but a process that receives its descriptor could otherwise
  // open it again with more rights: memfds are created with access for
  // everybody.
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
  return OkStatus();
}

Result<Socket> NewFile(size_t bytes) {
  Socket file(open(kFileSystem, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  int error = file.valid() ? 0 : errno;
  if (error == 0) {
    error = posix_fallocate(file.fd(), 0, static_cast<off_t>(bytes));
  }
  if (error != 0) {
    return ResourceExhaustedError(std::to_string(bytes) + " bytes in " +
                                  kFileSystem + ": " + ErrnoText(error));
  }
  return file;
}

// A file cannot be sealed. One without a name can be made smaller only by those
// that were handed it: ranks of the job.
bool IsOwnFile(const struct stat& facts) {
  return S_ISREG(facts.st_mode) && facts.st_nlink == 0 &&
         facts.st_uid == geteuid() && (facts.st_mode & 0077) == 0;
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Result<SharedMemory> SharedMemory::Create(const char* name, size_t bytes,
                                          Refused refused) {
  SharedMemory memory;
  memory.descriptor_ = NewMemfd(name);
  if (memory.descriptor_.valid()) {
    KR_RETURN_IF_ERROR(Prepare(memory.descriptor_, bytes));
  } else {
    const Status why =
        ResourceExhaustedError("memfd_create: " + ErrnoText(errno));
    if (refused == Refused::kError) return why;
    Result<Socket> file = NewFile(bytes);
    if (!file.ok()) return file.status().WithContext(why.message());
    memory.descriptor_ = std::move(file).value();
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
  const bool sealed = seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!(sealed || IsOwnFile(facts)) ||
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
  // The system writes all of a shared mapping to a core dump, and allocates the
  // untouched pages of a sparse one. That is more memory than the host has.
  (void)madvise(data, bytes, MADV_DONTDUMP);
  return OkStatus();
}

}  // namespace keras_ring
