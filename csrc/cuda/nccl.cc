#include "csrc/cuda/nccl.h"

#include <dlfcn.h>

#include <map>

#include "csrc/base/mutex.h"

namespace keras_ring::cuda {
namespace {

// The first with communicators that do not block.
constexpr int kOldestNccl = 21400;

template <typename Function>
Status LookUp(void* library, const std::string& name, const char* symbol,
              Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (function != nullptr) return OkStatus();
  return FailedPreconditionError(name + " has no " + symbol +
                                 ": it is too old for keras_ring");
}

Result<const Nccl*> Open(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (library == nullptr) {
    library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return FailedPreconditionError(std::string("there is no NCCL: ") +
                                   dlerror());
  }
  Nccl nccl;
#define KR_NCCL_LOOK_UP(function, parameters) \
  KR_RETURN_IF_ERROR(LookUp(library, name, #function, nccl.function));
  KR_NCCL_FUNCTIONS(KR_NCCL_LOOK_UP)
#undef KR_NCCL_LOOK_UP
  KR_RETURN_IF_ERROR(
      LookUp(library, name, "ncclGetErrorString", nccl.ncclGetErrorString));
  KR_RETURN_IF_ERROR(
      LookUp(library, name, "ncclGetLastError", nccl.ncclGetLastError));
  int version = 0;
  // A stub, such as TensorFlow's libraries have, only fails.
  KR_RETURN_IF_ERROR(
      StatusOf(nccl, nccl.ncclGetVersion(&version), nullptr, "ncclGetVersion"));
  if (version < kOldestNccl) {
    return FailedPreconditionError(name + " is NCCL " +
                                   NcclVersionText(version) +
                                   ", and keras_ring needs 2.14 or later");
  }
  return new Nccl(nccl);
}

}  // namespace

Result<const Nccl*> LoadNccl(const std::string& library) {
  static Mutex* const mutex = new Mutex();
  static auto* const opened = new std::map<std::string, Result<const Nccl*>>();
  MutexLock lock(*mutex);
  auto found = opened->find(library);
  if (found == opened->end()) {
    found = opened->emplace(library, Open(library)).first;
  }
  return found->second;
}

Status StatusOf(const Nccl& nccl, NcclCode code, NcclComm comm,
                const char* function) {
  if (code == kNcclSuccess) return OkStatus();
  std::string message = std::string(function) + ": ";
  message += nccl.ncclGetErrorString(code);
  const char* const last = nccl.ncclGetLastError(comm);
  if (last != nullptr && last[0] != '\0') message += std::string(", ") + last;
  return Status(code == kNcclRemoteError ? StatusCode::kUnavailable
                                         : StatusCode::kInternal,
                message);
}

std::string NcclVersionText(int version) {
  // Until 2.8 one digit was for the minor version.
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." +
         std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace keras_ring::cuda
