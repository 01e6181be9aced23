// The functions of the driver.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/fake_cuda_hidden.h"
#include "csrc/testing/fake_cuda_kernels.h"
#include "csrc/testing/fake_cuda_memory.h"
#include "csrc/testing/fake_cuda_stream.h"

namespace keras_ring::cuda {

// The driver's objects.
struct CUctx_st {
  int device = 0;
  int retained = 0;
  // The first error of work: every later call returns it, for ever.
  std::atomic<int> broken{0};
  std::unique_ptr<fake::FakeStream> default_stream;
};
struct CUstream_st {
  CUctx_st* context;
  fake::FakeStream stream;
};
struct CUevent_st {
  std::unique_ptr<fake::FakeEvent> event;
};
struct CUmod_st {
  std::set<std::string> kernels;
};
struct CUfunc_st {
  std::string kernel;
};

namespace fake {
namespace {

// All of the process.
struct State {
  FakeMemory memory;
  std::mutex mutex;
  CUctx_st contexts[kFakeDevices];
  std::atomic<size_t> streams{0};
  std::atomic<size_t> events{0};
};
State& Process() {
  static State* const state = [] {
    auto* made = new State();
    for (int i = 0; i < kFakeDevices; ++i) made->contexts[i].device = i;
    return made;
  }();
  return *state;
}

thread_local std::vector<CUctx_st*> current;
std::atomic<bool> distinct_devices{false};
std::atomic<uint64_t> identities{0};

// The context of the calling thread; null: it has none.
CUctx_st* Current() { return current.empty() ? nullptr : current.back(); }

#define KR_FAKE_CONTEXT(context)                  \
  CUctx_st* const context = Current();            \
  if (context == nullptr) return kInvalidContext; \
  if (const int broken = context->broken.load()) return broken

FakeStream& StreamOf(CUctx_st* context, Stream stream) {
  if (stream != nullptr) return stream->stream;
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(Process().mutex);
  if (!context->default_stream) {
    context->default_stream = std::make_unique<FakeStream>();
  }
  return *context->default_stream;
}

char* AliasOf(DevicePointer memory, size_t bytes) {
  return Process().memory.Alias(memory, bytes);
}

// Does `work` on the stream; the context is lost if it fails.
ErrorCode Give(Stream stream, std::function<bool()> work) {
  KR_FAKE_CONTEXT(context);
  StreamOf(context, stream).Give([context, work = std::move(work)] {
    if (context->broken.load() == 0 && !work()) {
      context->broken.store(kIllegalAddress);
    }
  });
  return kSuccess;
}

}  // namespace

// Under the driver's own names, so that a library of this file is one.
#define KR_FAKE(function, symbol, parameters) \
  __attribute__((visibility("default")))      \
  ErrorCode function parameters __asm__(#symbol);
KR_CUDA_FUNCTIONS(KR_FAKE)
#undef KR_FAKE

ErrorCode cuInit(unsigned) { return kSuccess; }
ErrorCode cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
ErrorCode cuDeviceGetCount(int* count) {
  *count = kFakeDevices;
  return kSuccess;
}
ErrorCode cuDeviceGet(DeviceNumber* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kFakeDevices) return 101;
  *device = ordinal;
  return kSuccess;
}
ErrorCode cuDeviceGetName(char* name, int bytes, DeviceNumber) {
  std::snprintf(name, bytes, "Fake GPU");
  return kSuccess;
}
ErrorCode cuDeviceGetAttribute(int* value, int attribute, DeviceNumber) {
  *value = attribute == kMultiprocessorCount ? 4 : 9;
  return kSuccess;
}
ErrorCode cuDeviceGetPCIBusId(char* id, int bytes, DeviceNumber device) {
  std::snprintf(id, bytes, "0000:%02x:00.0", device);
  return kSuccess;
}
ErrorCode cuDeviceGetUuid_v2(Uuid* uuid, DeviceNumber device) {
  std::memset(uuid, 0, sizeof(*uuid));
  uuid->bytes[0] = static_cast<char>(device + 1);
  if (distinct_devices.load()) {
    const uint64_t number = ++identities;
    std::memcpy(&uuid->bytes[8], &number, sizeof(number));
  }
  return kSuccess;
}
ErrorCode cuDeviceTotalMem(size_t* bytes, DeviceNumber) {
  *bytes = size_t{8} << 30;
  return kSuccess;
}
ErrorCode cuDeviceCanAccessPeer(int* can, DeviceNumber, DeviceNumber) {
  *can = 1;
  return kSuccess;
}
ErrorCode cuDevicePrimaryCtxRetain(Context* context, DeviceNumber device) {
  const std::lock_guard<std::mutex> lock(Process().mutex);
  *context = &Process().contexts[device];
  ++(*context)->retained;
  return kSuccess;
}
ErrorCode cuDevicePrimaryCtxRelease(DeviceNumber device) {
  const std::lock_guard<std::mutex> lock(Process().mutex);
  --Process().contexts[device].retained;
  return kSuccess;
}
ErrorCode cuCtxPushCurrent(Context context) {
  if (context == nullptr) return kInvalidContext;
  current.push_back(context);
  return kSuccess;
}
ErrorCode cuCtxPopCurrent(Context* context) {
  if (current.empty()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}
ErrorCode cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  KR_FAKE_CONTEXT(context);
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

ErrorCode cuStreamCreateWithPriority(Stream* stream, unsigned, int) {
  KR_FAKE_CONTEXT(context);
  *stream = new CUstream_st{context, {}};
  ++Process().streams;
  return kSuccess;
}
ErrorCode cuStreamDestroy(Stream stream) {
  delete stream;
  --Process().streams;
  return kSuccess;
}
ErrorCode cuStreamWaitEvent(Stream stream, EventHandle event, unsigned) {
  KR_FAKE_CONTEXT(context);
  StreamOf(context, stream).Wait(*event->event);
  return kSuccess;
}
ErrorCode cuStreamSynchronize(Stream stream) {
  KR_FAKE_CONTEXT(context);
  StreamOf(context, stream).Synchronize();
  return context->broken.load();
}
ErrorCode cuStreamGetCtx(Stream stream, Context* context) {
  *context = stream->context;
  return kSuccess;
}

ErrorCode cuEventCreate(EventHandle* event, unsigned flags) {
  KR_FAKE_CONTEXT(context);
  *event = new CUevent_st{FakeEvent::Create((flags & kEventInterprocess) != 0)};
  ++Process().events;
  return kSuccess;
}
ErrorCode cuEventDestroy(EventHandle event) {
  delete event;
  --Process().events;
  return kSuccess;
}
ErrorCode cuEventRecord(EventHandle event, Stream stream) {
  KR_FAKE_CONTEXT(context);
  StreamOf(context, stream).Record(*event->event);
  return kSuccess;
}
ErrorCode cuEventQuery(EventHandle event) {
  KR_FAKE_CONTEXT(context);
  return EventPoint(*event->event).Reached() ? kSuccess : kNotReady;
}
ErrorCode cuEventSynchronize(EventHandle event) {
  KR_FAKE_CONTEXT(context);
  EventPoint(*event->event).Await();
  return context->broken.load();
}

ErrorCode cuMemAlloc(DevicePointer* memory, size_t bytes) {
  KR_FAKE_CONTEXT(context);
  return Process().memory.Allocate(memory, bytes, context->device);
}
// As the real one: what was given to the device is done before.
ErrorCode cuMemFree(DevicePointer memory) {
  KR_FAKE_CONTEXT(context);
  return Process().memory.Free(memory);
}
ErrorCode cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::malloc(bytes);
  return *memory != nullptr ? kSuccess : kOutOfMemory;
}
ErrorCode cuMemFreeHost(void* memory) {
  std::free(memory);
  return kSuccess;
}

ErrorCode cuMemcpyDtoHAsync(void* to, DevicePointer from, size_t bytes,
                            Stream stream) {
  return Give(stream, [=] {
    const char* const source = AliasOf(from, bytes);
    if (source != nullptr) std::memcpy(to, source, bytes);
    return source != nullptr;
  });
}
ErrorCode cuMemcpyHtoDAsync(DevicePointer to, const void* from, size_t bytes,
                            Stream stream) {
  return Give(stream, [=] {
    char* const target = AliasOf(to, bytes);
    if (target != nullptr) std::memcpy(target, from, bytes);
    return target != nullptr;
  });
}
ErrorCode cuMemcpyDtoDAsync(DevicePointer to, DevicePointer from, size_t bytes,
                            Stream stream) {
  return Give(stream, [=] {
    char* const target = AliasOf(to, bytes);
    const char* const source = AliasOf(from, bytes);
    if (target == nullptr || source == nullptr) return false;
    std::memmove(target, source, bytes);
    return true;
  });
}
ErrorCode cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes,
                          Stream stream) {
  return Give(stream, [=] {
    char* const target = AliasOf(to, bytes);
    if (target != nullptr) std::memset(target, value, bytes);
    return target != nullptr;
  });
}

ErrorCode cuPointerGetAttribute(void* value, int attribute,
                                DevicePointer memory) {
  KR_FAKE_CONTEXT(context);
  FakeMemory& all = Process().memory;
  unsigned long long number = 0;
  const ErrorCode code = all.Number(&number, memory);
  if (code != kSuccess) return code;
  switch (attribute) {
    case kPointerBufferId:
      std::memcpy(value, &number, sizeof(number));
      return kSuccess;
    case kPointerMemoryType:
      std::memcpy(value, &kMemoryOfDevice, sizeof(kMemoryOfDevice));
      return kSuccess;
    case kPointerDeviceOrdinal:
      return all.Device(static_cast<int*>(value), memory);
    default:
      return kInvalidValue;
  }
}
ErrorCode cuMemGetAddressRange(DevicePointer* base, size_t* bytes,
                               DevicePointer memory) {
  KR_FAKE_CONTEXT(context);
  return Process().memory.Range(base, bytes, memory);
}
ErrorCode cuIpcGetMemHandle(IpcMemoryHandle* handle, DevicePointer memory) {
  KR_FAKE_CONTEXT(context);
  return Process().memory.Export(handle, memory);
}
ErrorCode cuIpcOpenMemHandle(DevicePointer* memory, IpcMemoryHandle handle,
                             unsigned) {
  KR_FAKE_CONTEXT(context);
  return Process().memory.Import(memory, handle);
}
ErrorCode cuIpcCloseMemHandle(DevicePointer memory) {
  KR_FAKE_CONTEXT(context);
  return Process().memory.Free(memory);
}
ErrorCode cuIpcGetEventHandle(IpcEventHandle* handle, EventHandle event) {
  KR_FAKE_CONTEXT(context);
  return event->event->Export(handle);
}
ErrorCode cuIpcOpenEventHandle(EventHandle* event, IpcEventHandle handle) {
  KR_FAKE_CONTEXT(context);
  auto opened = FakeEvent::Open(handle);
  if (opened == nullptr) return kInvalidContext;
  *event = new CUevent_st{std::move(opened)};
  ++Process().events;
  return kSuccess;
}

ErrorCode cuModuleLoadDataEx(Module* module, const void* image, unsigned, int*,
                             void**) {
  KR_FAKE_CONTEXT(context);
  const std::string text = static_cast<const char*>(image);
  auto loaded = std::make_unique<CUmod_st>();
  const std::string entry = ".entry ";
  for (size_t at = text.find(entry); at != std::string::npos;
       at = text.find(entry, at + 1)) {
    const size_t begin = at + entry.size();
    loaded->kernels.insert(text.substr(begin, text.find('(', begin) - begin));
  }
  *module = loaded.release();
  return kSuccess;
}
ErrorCode cuModuleUnload(Module module) {
  delete module;
  return kSuccess;
}
ErrorCode cuModuleGetFunction(Function* function, Module module,
                              const char* name) {
  KR_FAKE_CONTEXT(context);
  if (module->kernels.count(name) == 0) return kNotFound;
  static Mutex* const mutex = new Mutex();
  MutexLock lock(*mutex);
  // Functions end with the process, for the driver has no call that frees one.
  static auto* const made = new std::vector<std::unique_ptr<CUfunc_st>>();
  made->push_back(std::make_unique<CUfunc_st>(CUfunc_st{name}));
  *function = made->back().get();
  return kSuccess;
}
ErrorCode cuLaunchKernel(Function function, unsigned grid_x, unsigned grid_y,
                         unsigned grid_z, unsigned block_x, unsigned block_y,
                         unsigned block_z, unsigned, Stream stream,
                         void** parameters, void**) {
  const unsigned sizes[] = {grid_x, grid_y, grid_z, block_x, block_y, block_z};
  for (unsigned size : sizes) {
    if (size == 0) return kInvalidValue;
  }
  auto work = KernelWork(
      function->kernel, parameters, [](const void* memory, size_t bytes) {
        return AliasOf(reinterpret_cast<DevicePointer>(memory), bytes);
      });
  if (work == nullptr) return kNotFound;
  return Give(stream, std::move(work));
}

ErrorCode cuGetErrorName(ErrorCode code, const char** name) {
  switch (code) {
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      break;
    case kIllegalAddress:
      *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
      break;
    case kInvalidContext:
      *name = "CUDA_ERROR_INVALID_CONTEXT";
      break;
    default:
      *name = "CUDA_ERROR_OF_THE_FAKE";
  }
  return kSuccess;
}
ErrorCode cuGetErrorString(ErrorCode, const char** text) {
  *text = "an error of the fake driver";
  return kSuccess;
}

void SetDelays(uint64_t seed, int microseconds) {
  FakeStream::SetDelays(seed, microseconds);
}
void LimitAllocations(int count) { Process().memory.Limit(count); }
void DistinctDevices(bool distinct) { distinct_devices.store(distinct); }
void MakeShareable(bool shareable) {
  Process().memory.MakeShareable(shareable);
}
size_t NumAllocations() { return Process().memory.count(); }
size_t NumStreams() { return Process().streams.load(); }
size_t NumEvents() { return Process().events.load(); }
void GiveWork(Stream stream, std::function<bool()> work) {
  KR_CHECK(Give(stream, std::move(work)) == kSuccess);
}
void* Alias(DevicePointer memory, size_t bytes) {
  return AliasOf(memory, bytes);
}

}  // namespace fake

const Driver& FakeDriver() {
  static const Driver driver = [] {
    Driver made;
#define KR_FAKE(function, symbol, parameters) made.function = fake::function;
    KR_CUDA_FUNCTIONS(KR_FAKE)
#undef KR_FAKE
    return made;
  }();
  return driver;
}

const Driver& TestedDriver() {
  static const Driver& driver = []() -> const Driver& {
    const char* const wanted = std::getenv("KERAS_RING_TEST_DRIVER");
    if (wanted == nullptr || std::string(wanted) != "real") return FakeDriver();
    const Result<const Driver*> loaded = LoadDriver();
    if (!loaded.ok()) {
      std::fprintf(stderr, "%s\n", loaded.status().message().c_str());
      std::abort();
    }
    return **loaded;
  }();
  return driver;
}

}  // namespace keras_ring::cuda
