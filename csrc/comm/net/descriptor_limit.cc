#include "csrc/comm/net/descriptor_limit.h"

#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>

#include <algorithm>

#include "csrc/comm/net/socket.h"

namespace keras_ring {
namespace {

// Descriptors that whatever else runs in this process may yet open.
constexpr size_t kReserve = 256;

size_t OpenDescriptors() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  size_t count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

}  // namespace

Status MakeRoomForDescriptors(size_t count, const std::string& purpose) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return InternalError("getrlimit: " + ErrnoText(errno));
  }
  const size_t needed = OpenDescriptors() + count;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, needed + kReserve);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
      return InternalError("setrlimit: " + ErrnoText(errno));
    }
  }
  if (limit.rlim_cur >= needed) return OkStatus();
  return ResourceExhaustedError(
      purpose + " needs " + std::to_string(needed) +
      " open files, and this process may have " +
      std::to_string(limit.rlim_cur) +
      "; raise the hard limit (`ulimit -Hn`, or LimitNOFILE= and the like of "
      "whoever starts the ranks)");
}

}  // namespace keras_ring
