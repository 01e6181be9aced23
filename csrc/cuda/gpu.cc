#include "csrc/cuda/gpu.h"

#include "csrc/base/logging.h"

namespace keras_ring::cuda {
namespace {

// What cannot be given back is lost with the process; there is nobody to tell.
void Ignore(const Status& status) {
  if (!status.ok()) {
    KR_LOG(kDebug) << status.message();
  }
}

}  // namespace

Result<std::shared_ptr<Gpu>> Gpu::Open(const Driver& driver, int ordinal) {
  int count = 0;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuDeviceGetCount, &count));
  if (ordinal < 0 || ordinal >= count) {
    return InvalidArgumentError("there is no gpu:" + std::to_string(ordinal) +
                                ": this process sees " + std::to_string(count));
  }
  std::shared_ptr<Gpu> gpu(new Gpu(driver, ordinal));
  KR_RETURN_IF_ERROR(gpu->Initialize());
  return gpu;
}

Status Gpu::Initialize() {
  KR_RETURN_IF_ERROR(KR_CUDA(driver_, cuDeviceGet, &number_, ordinal_));
  char name[256] = "";
  KR_RETURN_IF_ERROR(
      KR_CUDA(driver_, cuDeviceGetName, name, sizeof(name), number_));
  name_ = name;
  KR_RETURN_IF_ERROR(KR_CUDA(driver_, cuDeviceGetUuid_v2, &uuid_, number_));
  KR_RETURN_IF_ERROR(KR_CUDA(driver_, cuDeviceGetAttribute, &multiprocessors_,
                             kMultiprocessorCount, number_));
  return KR_CUDA(driver_, cuDevicePrimaryCtxRetain, &context_, number_);
}

Gpu::~Gpu() {
  if (context_ == nullptr) return;
  Ignore(KR_CUDA(driver_, cuDevicePrimaryCtxRelease, number_));
}

Gpu::Current::Current(const Gpu& gpu) : driver_(gpu.driver_) {
  status_ = KR_CUDA(driver_, cuCtxPushCurrent, gpu.context_);
}

Gpu::Current::~Current() {
  if (!status_.ok()) return;
  Context context = nullptr;
  Ignore(KR_CUDA(driver_, cuCtxPopCurrent, &context));
}

Result<void*> Gpu::AllocateHost(size_t bytes) {
  const Current current(*this);
  KR_RETURN_IF_ERROR(current.status());
  void* memory = nullptr;
  KR_RETURN_IF_ERROR(KR_CUDA(driver_, cuMemHostAlloc, &memory,
                             bytes > 0 ? bytes : 1, kHostAllocPortable));
  return memory;
}

void Gpu::FreeHost(void* memory) {
  const Current current(*this);
  Ignore(KR_CUDA(driver_, cuMemFreeHost, memory));
}

Result<void*> Gpu::Allocate(size_t bytes) {
  const Current current(*this);
  KR_RETURN_IF_ERROR(current.status());
  DevicePointer memory = 0;
  KR_RETURN_IF_ERROR(
      KR_CUDA(driver_, cuMemAlloc, &memory, bytes > 0 ? bytes : 1)
          .WithContext(std::to_string(bytes) +
                       " bytes on gpu:" + std::to_string(ordinal_)));
  return FromDevice(memory);
}

void Gpu::Free(void* memory) {
  const Current current(*this);
  Ignore(KR_CUDA(driver_, cuMemFree, ToDevice(memory)));
}

Status Gpu::Write(void* to, const void* from_host, size_t bytes) {
  if (bytes == 0) return OkStatus();
  const Current current(*this);
  KR_RETURN_IF_ERROR(current.status());
  KR_RETURN_IF_ERROR(KR_CUDA(driver_, cuMemcpyHtoDAsync, ToDevice(to),
                             from_host, bytes, nullptr));
  return KR_CUDA(driver_, cuStreamSynchronize, nullptr);
}

Status Gpu::Read(void* to_host, const void* from, size_t bytes) {
  if (bytes == 0) return OkStatus();
  const Current current(*this);
  KR_RETURN_IF_ERROR(current.status());
  KR_RETURN_IF_ERROR(KR_CUDA(driver_, cuMemcpyDtoHAsync, to_host,
                             ToDevice(from), bytes, nullptr));
  return KR_CUDA(driver_, cuStreamSynchronize, nullptr);
}

Result<OwnStream> OwnStream::Create(std::shared_ptr<Gpu> gpu) {
  const Driver& driver = gpu->driver();
  const Gpu::Current current(*gpu);
  KR_RETURN_IF_ERROR(current.status());
  int least = 0;
  int greatest = 0;
  KR_RETURN_IF_ERROR(
      KR_CUDA(driver, cuCtxGetStreamPriorityRange, &least, &greatest));
  Stream stream = nullptr;
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuStreamCreateWithPriority, &stream,
                             kStreamNonBlocking, greatest));
  return OwnStream(std::move(gpu), stream);
}

OwnStream::~OwnStream() {
  if (stream_ == nullptr) return;
  const Gpu::Current current(*gpu_);
  Ignore(KR_CUDA(gpu_->driver(), cuStreamDestroy, stream_));
}

Result<std::shared_ptr<CudaEvent>> CudaEvent::Create(std::shared_ptr<Gpu> gpu,
                                                     unsigned flags) {
  const Gpu::Current current(*gpu);
  KR_RETURN_IF_ERROR(current.status());
  EventHandle event = nullptr;
  KR_RETURN_IF_ERROR(KR_CUDA(gpu->driver(), cuEventCreate, &event,
                             kEventDisableTiming | flags));
  return std::shared_ptr<CudaEvent>(
      new CudaEvent(std::move(gpu), event, /*owned=*/true));
}

Result<std::shared_ptr<CudaEvent>> CudaEvent::Open(
    std::shared_ptr<Gpu> gpu, const IpcEventHandle& handle) {
  const Gpu::Current current(*gpu);
  KR_RETURN_IF_ERROR(current.status());
  EventHandle event = nullptr;
  KR_RETURN_IF_ERROR(
      KR_CUDA(gpu->driver(), cuIpcOpenEventHandle, &event, handle));
  return std::shared_ptr<CudaEvent>(
      new CudaEvent(std::move(gpu), event, /*owned=*/true));
}

std::shared_ptr<CudaEvent> CudaEvent::Borrow(std::shared_ptr<Gpu> gpu,
                                             EventHandle handle) {
  return std::shared_ptr<CudaEvent>(
      new CudaEvent(std::move(gpu), handle, /*owned=*/false));
}

CudaEvent::~CudaEvent() {
  if (!owned_) return;
  const Gpu::Current current(*gpu_);
  Ignore(KR_CUDA(gpu_->driver(), cuEventDestroy, event_));
}

Status CudaEvent::Record(Stream stream) {
  const Gpu::Current current(*gpu_);
  KR_RETURN_IF_ERROR(current.status());
  return KR_CUDA(gpu_->driver(), cuEventRecord, event_, stream);
}

Result<bool> CudaEvent::Reached() const {
  const Gpu::Current current(*gpu_);
  KR_RETURN_IF_ERROR(current.status());
  const ErrorCode code = gpu_->driver().cuEventQuery(event_);
  if (code == kNotReady) return false;
  KR_RETURN_IF_ERROR(StatusOf(gpu_->driver(), code, "cuEventQuery"));
  return true;
}

Status CudaEvent::Wait() const {
  const Gpu::Current current(*gpu_);
  KR_RETURN_IF_ERROR(current.status());
  return KR_CUDA(gpu_->driver(), cuEventSynchronize, event_);
}

}  // namespace keras_ring::cuda
