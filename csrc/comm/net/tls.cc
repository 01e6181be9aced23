#include "csrc/comm/net/tls.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace keras_ring {
namespace {

constexpr char kLibrary[] = "libkeras_ring_tls.so";
constexpr char kFactory[] = "keras_ring_new_tls";
using Factory = Tls* (*)(const ProcessMemory* memory, Status* status);

// TensorFlow's libraries export functions of BoringSSL that have the names of
// OpenSSL's. Deep binding has ours found first. A sanitizer ends the process
// that asks for it.
int HowToBind() {
  for (const char* function : {"__asan_init", "__tsan_init", "__msan_init"}) {
    if (dlsym(RTLD_DEFAULT, function) != nullptr) return RTLD_NOW | RTLD_LOCAL;
  }
  return RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
}

// The folder of the library that holds this function.
std::string OwnFolder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

Result<Tls*> Load() {
  const std::string path = OwnFolder() + "/" + kLibrary;
  if (access(path.c_str(), F_OK) != 0) {
    return FailedPreconditionError(
        "KERAS_RING_TLS is 1, but this keras_ring was built without TLS, since "
        "no OpenSSL (3.0 or later) was found: install OpenSSL's headers "
        "(Debian's libssl-dev), then keras_ring again, from its source (`pip "
        "install --no-build-isolation --force-reinstall --no-deps .`)");
  }
  void* library = dlopen(path.c_str(), HowToBind());
  void* factory = library != nullptr ? dlsym(library, kFactory) : nullptr;
  if (factory == nullptr) {
    const char* why = dlerror();
    return FailedPreconditionError(
        std::string("KERAS_RING_TLS is 1, but TLS cannot be loaded: ") +
        (why != nullptr ? why : "an unknown error"));
  }
  Status status;
  const ProcessMemory memory = {std::malloc, std::realloc, std::free};
  Tls* tls = reinterpret_cast<Factory>(factory)(&memory, &status);
  if (tls == nullptr) return status;
  return tls;
}

}  // namespace

Result<Tls*> LoadTls() {
  // Kept to the end of the process: so are threads that were not joined.
  static const Result<Tls*>* const loaded = new Result<Tls*>(Load());
  return *loaded;
}

}  // namespace keras_ring
