#include "csrc/cuda/driver.h"

#include <dlfcn.h>

#include <map>

#include "csrc/base/mutex.h"

namespace keras_ring::cuda {
namespace {

// CUDA 12: the kernels are in the PTX of its first version.
constexpr int kOldestDriver = 12000;

Result<Driver> LookUp(void* library, const std::string& name) {
  Driver driver;
#define KR_CUDA_LOOK_UP(function, symbol, parameters)                         \
  driver.function =                                                           \
      reinterpret_cast<decltype(driver.function)>(dlsym(library, #symbol));   \
  if (driver.function == nullptr) {                                           \
    return FailedPreconditionError(name + " has no " #symbol                  \
                                          ": the driver of this host is too " \
                                          "old for keras_ring");              \
  }
  KR_CUDA_FUNCTIONS(KR_CUDA_LOOK_UP)
#undef KR_CUDA_LOOK_UP
  return driver;
}

Status Initialize(const Driver& driver) {
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuInit, 0));
  int version = 0;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDriverGetVersion, &version));
  if (version < kOldestDriver) {
    return FailedPreconditionError(
        "the driver of this host is for CUDA " +
        std::to_string(version / 1000) + "." +
        std::to_string(version % 1000 / 10) +
        ", and keras_ring needs one for CUDA 12.0 or later");
  }
  return OkStatus();
}

Result<const Driver*> Open(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPreconditionError(std::string("there is no NVIDIA driver: ") +
                                   dlerror());
  }
  KR_ASSIGN_OR_RETURN(const Driver driver, LookUp(library, name));
  const Status ready = Initialize(driver);
  if (!ready.ok()) return FailedPreconditionError(ready.message());
  return new Driver(driver);
}

}  // namespace

Result<const Driver*> LoadDriver(const std::string& library) {
  static Mutex* const mutex = new Mutex();
  static auto* const opened =
      new std::map<std::string, Result<const Driver*>>();
  MutexLock lock(*mutex);
  auto found = opened->find(library);
  if (found == opened->end()) {
    found = opened->emplace(library, Open(library)).first;
  }
  return found->second;
}

Status StatusOf(const Driver& driver, ErrorCode code, const char* function) {
  if (code == kSuccess) return OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  driver.cuGetErrorName(code, &name);
  driver.cuGetErrorString(code, &text);
  std::string message = std::string(function) + ": ";
  message += name != nullptr ? name : "error " + std::to_string(code);
  if (text != nullptr) message += std::string(", ") + text;
  return Status(code == kOutOfMemory ? StatusCode::kResourceExhausted
                                     : StatusCode::kInternal,
                message);
}

}  // namespace keras_ring::cuda
