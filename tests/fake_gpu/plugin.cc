// A device of the fake driver as TensorFlow sees it: a plug-in by its C
// interface of StreamExecutor.
//
// Its type is KERAS_RING_FAKE_GPU_TYPE. "GPU" needs a TensorFlow that was built
// without CUDA, for one that was has kernels of its own for that type. All work
// is delayed by up to 200 us, drawn by the seed KERAS_RING_TEST_GPU_SEED.
#include <cstdlib>
#include <functional>

#include "csrc/testing/fake_cuda.h"
#include "tensorflow/c/experimental/stream_executor/stream_executor.h"

namespace {

using namespace keras_ring::cuda;  // NOLINT(google-build-using-namespace)

constexpr int64_t kMemory = int64_t{1} << 30;  // what a device says it has

const Driver& driver() { return FakeDriver(); }

// The context of a device, for the calling thread, while it lives.
class Current {
 public:
  explicit Current(const SP_Device* device) {
    Context context;
    driver().cuDevicePrimaryCtxRetain(&context, device->ordinal);
    driver().cuCtxPushCurrent(context);
  }
  ~Current() {
    Context context;
    driver().cuCtxPopCurrent(&context);
  }
};

void Report(ErrorCode code, TF_Status* status) {
  const char* text = "";
  if (code != kSuccess) driver().cuGetErrorName(code, &text);
  TF_SetStatus(status, code == kSuccess ? TF_OK : TF_INTERNAL, text);
}

DevicePointer Address(const SP_DeviceMemoryBase* memory) {
  return reinterpret_cast<DevicePointer>(memory->opaque);
}
// The handles are the driver's.
Stream ToDriver(SP_Stream stream) { return reinterpret_cast<Stream>(stream); }
EventHandle ToDriver(SP_Event event) {
  return reinterpret_cast<EventHandle>(event);
}

// --- Memory ---

void Allocate(const SP_Device* device, uint64_t bytes, int64_t,
              SP_DeviceMemoryBase* memory) {
  const Current current(device);
  DevicePointer address = 0;
  const bool found = driver().cuMemAlloc(&address, bytes) == kSuccess;
  memory->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  memory->ext = nullptr;
  memory->opaque = reinterpret_cast<void*>(address);
  memory->size = found ? bytes : 0;
  memory->payload = 0;
}
void Deallocate(const SP_Device* device, SP_DeviceMemoryBase* memory) {
  const Current current(device);
  driver().cuMemFree(Address(memory));
  memory->opaque = nullptr;
  memory->size = 0;
}
void* AllocateHost(const SP_Device*, uint64_t bytes) {
  // As TensorFlow wants its tensors.
  constexpr uint64_t kAlignment = 64;
  const uint64_t blocks = (bytes + kAlignment - 1) / kAlignment;
  return std::aligned_alloc(kAlignment, blocks * kAlignment);
}
void FreeHost(const SP_Device*, void* memory) { std::free(memory); }
TF_Bool Statistics(const SP_Device*, SP_AllocatorStats* statistics) {
  statistics->struct_size = SP_ALLOCATORSTATS_STRUCT_SIZE;
  return 0;
}
TF_Bool Usage(const SP_Device*, int64_t* free, int64_t* total) {
  *free = kMemory;
  *total = kMemory;
  return 1;
}

// --- Streams and events ---

void CreateStream(const SP_Device* device, SP_Stream* stream,
                  TF_Status* status) {
  const Current current(device);
  Stream made = nullptr;
  Report(driver().cuStreamCreateWithPriority(&made, kStreamNonBlocking, 0),
         status);
  *stream = reinterpret_cast<SP_Stream>(made);
}
void DestroyStream(const SP_Device* device, SP_Stream stream) {
  const Current current(device);
  driver().cuStreamDestroy(ToDriver(stream));
}
void StreamState(const SP_Device*, SP_Stream, TF_Status* status) {
  Report(kSuccess, status);
}
void CreateEvent(const SP_Device* device, SP_Event* event, TF_Status* status) {
  const Current current(device);
  EventHandle made = nullptr;
  Report(driver().cuEventCreate(&made, kEventDisableTiming), status);
  *event = reinterpret_cast<SP_Event>(made);
}
void DestroyEvent(const SP_Device* device, SP_Event event) {
  const Current current(device);
  driver().cuEventDestroy(ToDriver(event));
}
SE_EventStatus EventState(const SP_Device* device, SP_Event event) {
  const Current current(device);
  const ErrorCode code = driver().cuEventQuery(ToDriver(event));
  if (code == kSuccess) return SE_EVENT_COMPLETE;
  return code == kNotReady ? SE_EVENT_PENDING : SE_EVENT_ERROR;
}
void RecordEvent(const SP_Device* device, SP_Stream stream, SP_Event event,
                 TF_Status* status) {
  const Current current(device);
  Report(driver().cuEventRecord(ToDriver(event), ToDriver(stream)), status);
}
void WaitForEvent(const SP_Device* const device, SP_Stream stream,
                  SP_Event event, TF_Status* const status) {
  const Current current(device);
  Report(driver().cuStreamWaitEvent(ToDriver(stream), ToDriver(event), 0),
         status);
}
void WaitForStream(const SP_Device* device, SP_Stream dependent,
                   SP_Stream other, TF_Status* status) {
  SP_Event event = nullptr;
  CreateEvent(device, &event, status);
  RecordEvent(device, other, event, status);
  WaitForEvent(device, dependent, event, status);
  DestroyEvent(device, event);
}
void BlockForEvent(const SP_Device* device, SP_Event event, TF_Status* status) {
  const Current current(device);
  Report(driver().cuEventSynchronize(ToDriver(event)), status);
}
void BlockForStream(const SP_Device* device, SP_Stream stream,
                    TF_Status* status) {
  const Current current(device);
  Report(driver().cuStreamSynchronize(ToDriver(stream)), status);
}
// All is synchronised by streams: see BlockForStream.
void Synchronize(const SP_Device*, TF_Status* status) {
  Report(kSuccess, status);
}
TF_Bool CallHost(const SP_Device* device, SP_Stream stream,
                 SE_StatusCallbackFn call, void* argument) {
  const Current current(device);
  fake::GiveWork(ToDriver(stream), [call, argument] {
    TF_Status* const status = TF_NewStatus();
    call(argument, status);
    TF_DeleteStatus(status);
    return true;
  });
  return 1;
}

// --- Copies ---

void CopyToHost(const SP_Device* device, SP_Stream stream, void* to,
                const SP_DeviceMemoryBase* from, uint64_t bytes,
                TF_Status* status) {
  const Current current(device);
  Report(driver().cuMemcpyDtoHAsync(to, Address(from), bytes, ToDriver(stream)),
         status);
}
void CopyToDevice(const SP_Device* device, SP_Stream stream,
                  SP_DeviceMemoryBase* to, const void* from, uint64_t bytes,
                  TF_Status* status) {
  const Current current(device);
  Report(driver().cuMemcpyHtoDAsync(Address(to), from, bytes, ToDriver(stream)),
         status);
}
void CopyOnDevice(const SP_Device* device, SP_Stream stream,
                  SP_DeviceMemoryBase* to, const SP_DeviceMemoryBase* from,
                  uint64_t bytes, TF_Status* status) {
  const Current current(device);
  Report(driver().cuMemcpyDtoDAsync(Address(to), Address(from), bytes,
                                    ToDriver(stream)),
         status);
}
void Set(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to,
         uint8_t value, uint64_t bytes, TF_Status* status) {
  const Current current(device);
  Report(driver().cuMemsetD8Async(Address(to), value, bytes, ToDriver(stream)),
         status);
}
void Zero(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to,
          uint64_t bytes, TF_Status* status) {
  Set(device, stream, to, 0, bytes, status);
}
void SetWords(const SP_Device* device, SP_Stream stream,
              SP_DeviceMemoryBase* to, uint32_t value, uint64_t bytes,
              TF_Status* status) {
  const Current current(device);
  auto* const words = static_cast<uint32_t*>(fake::Alias(Address(to), bytes));
  fake::GiveWork(ToDriver(stream), [=] {
    for (uint64_t i = 0; i < bytes / sizeof(value); ++i) words[i] = value;
    return true;
  });
  Report(kSuccess, status);
}

// Runs a copy on a stream of its own, to its end.
void Await(const SP_Device* device, TF_Status* status,
           const std::function<void(SP_Stream)>& copy) {
  SP_Stream stream = nullptr;
  CreateStream(device, &stream, status);
  copy(stream);
  BlockForStream(device, stream, status);
  DestroyStream(device, stream);
}
void CopyToHostNow(const SP_Device* device, void* to,
                   const SP_DeviceMemoryBase* from, uint64_t bytes,
                   TF_Status* status) {
  Await(device, status, [=](SP_Stream stream) {
    CopyToHost(device, stream, to, from, bytes, status);
  });
}
void CopyToDeviceNow(const SP_Device* device, SP_DeviceMemoryBase* to,
                     const void* from, uint64_t bytes, TF_Status* status) {
  Await(device, status, [=](SP_Stream stream) {
    CopyToDevice(device, stream, to, from, bytes, status);
  });
}
void CopyOnDeviceNow(const SP_Device* device, SP_DeviceMemoryBase* to,
                     const SP_DeviceMemoryBase* from, uint64_t bytes,
                     TF_Status* status) {
  Await(device, status, [=](SP_Stream stream) {
    CopyOnDevice(device, stream, to, from, bytes, status);
  });
}

// --- Timers: TensorFlow asks for them and does not use them ---

struct Timer {};
void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status* status) {
  *timer = reinterpret_cast<SP_Timer>(new Timer());
  Report(kSuccess, status);
}
void DestroyTimer(const SP_Device*, SP_Timer timer) {
  delete reinterpret_cast<Timer*>(timer);
}
void UseTimer(const SP_Device*, SP_Stream, SP_Timer, TF_Status* status) {
  Report(kSuccess, status);
}
uint64_t Nanoseconds(SP_Timer) { return 1; }

// --- The platform ---

void CountDevices(const SP_Platform*, int* count, TF_Status* status) {
  Report(driver().cuDeviceGetCount(count), status);
}
void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* parameters,
                  TF_Status* status) {
  SP_Device& device = *parameters->device;
  device.struct_size = SP_DEVICE_STRUCT_SIZE;
  device.ordinal = parameters->ordinal;
  device.device_handle = nullptr;
  device.hardware_name = "fake";
  device.device_vendor = "keras_ring";
  device.pci_bus_id = "0000:00:00.0";
  Report(kSuccess, status);
}
void DestroyDevice(const SP_Platform*, SP_Device*) {}
int32_t NumaNode(const SP_Device*) { return 0; }
int64_t Bandwidth(const SP_Device*) { return -1; }
double Gflops(const SP_Device*) { return -1; }
void CreateDeviceFunctions(const SP_Platform*,
                           SE_CreateDeviceFnsParams* parameters,
                           TF_Status* status) {
  *parameters->device_fns = {SP_DEVICE_FNS_STRUCT_SIZE, nullptr, NumaNode,
                             Bandwidth, Gflops};
  Report(kSuccess, status);
}
void DestroyDeviceFunctions(const SP_Platform*, SP_DeviceFns*) {}
void CreateExecutor(const SP_Platform*,
                    SE_CreateStreamExecutorParams* parameters,
                    TF_Status* status) {
  SP_StreamExecutor& executor = *parameters->stream_executor;
  executor.struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  executor.allocate = Allocate;
  executor.deallocate = Deallocate;
  executor.host_memory_allocate = AllocateHost;
  executor.host_memory_deallocate = FreeHost;
  executor.get_allocator_stats = Statistics;
  executor.device_memory_usage = Usage;
  executor.create_stream = CreateStream;
  executor.destroy_stream = DestroyStream;
  executor.create_stream_dependency = WaitForStream;
  executor.get_stream_status = StreamState;
  executor.create_event = CreateEvent;
  executor.destroy_event = DestroyEvent;
  executor.get_event_status = EventState;
  executor.record_event = RecordEvent;
  executor.wait_for_event = WaitForEvent;
  executor.create_timer = CreateTimer;
  executor.destroy_timer = DestroyTimer;
  executor.start_timer = UseTimer;
  executor.stop_timer = UseTimer;
  executor.memcpy_dtoh = CopyToHost;
  executor.memcpy_htod = CopyToDevice;
  executor.memcpy_dtod = CopyOnDevice;
  executor.sync_memcpy_dtoh = CopyToHostNow;
  executor.sync_memcpy_htod = CopyToDeviceNow;
  executor.sync_memcpy_dtod = CopyOnDeviceNow;
  executor.block_host_for_event = BlockForEvent;
  executor.block_host_until_done = BlockForStream;
  executor.synchronize_all_activity = Synchronize;
  executor.mem_zero = Zero;
  executor.memset = Set;
  executor.memset32 = SetWords;
  executor.host_callback = CallHost;
  Report(kSuccess, status);
}
void DestroyExecutor(const SP_Platform*, SP_StreamExecutor*) {}
void CreateTimerFunctions(const SP_Platform*, SP_TimerFns* timer,
                          TF_Status* status) {
  timer->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  timer->nanoseconds = Nanoseconds;
  Report(kSuccess, status);
}
void DestroyTimerFunctions(const SP_Platform*, SP_TimerFns*) {}
void DestroyPlatform(SP_Platform*) {}
void DestroyPlatformFunctions(SP_PlatformFns*) {}

}  // namespace

extern "C" __attribute__((visibility("default"))) void SE_InitPlugin(
    SE_PlatformRegistrationParams* parameters, TF_Status* status) {
  SP_Platform& platform = *parameters->platform;
  platform.struct_size = SP_PLATFORM_STRUCT_SIZE;
  platform.name = "KERAS_RING_FAKE";
  platform.type = KERAS_RING_FAKE_GPU_TYPE;
  platform.supports_unified_memory = 0;
  platform.use_bfc_allocator = 1;
  platform.force_memory_growth = 1;
  SP_PlatformFns& functions = *parameters->platform_fns;
  functions.struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  functions.get_device_count = CountDevices;
  functions.create_device = CreateDevice;
  functions.destroy_device = DestroyDevice;
  functions.create_device_fns = CreateDeviceFunctions;
  functions.destroy_device_fns = DestroyDeviceFunctions;
  functions.create_stream_executor = CreateExecutor;
  functions.destroy_stream_executor = DestroyExecutor;
  functions.create_timer_fns = CreateTimerFunctions;
  functions.destroy_timer_fns = DestroyTimerFunctions;
  parameters->destroy_platform = DestroyPlatform;
  parameters->destroy_platform_fns = DestroyPlatformFunctions;
  if (const char* const seed = std::getenv("KERAS_RING_TEST_GPU_SEED")) {
    fake::SetDelays(std::strtoull(seed, nullptr, 10), 200);
  }
  Report(kSuccess, status);
}
