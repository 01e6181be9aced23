#include "csrc/cuda/cuda_access.h"

namespace keras_ring::cuda {

Result<const Driver*> CudaAccess::Load() {
  if (driver_ == nullptr) {
    KR_ASSIGN_OR_RETURN(driver_, LoadDriver(library_));
  }
  return driver_;
}

Status CudaAccess::CheckAny() {
  MutexLock lock(mutex_);
  KR_ASSIGN_OR_RETURN(const Driver* const driver, Load());
  int count = 0;
  KR_RETURN_IF_ERROR(KR_CUDA(*driver, cuDeviceGetCount, &count));
  if (count > 0) return OkStatus();
  return FailedPreconditionError("this process sees no GPU");
}

Result<CudaAccess::Opened> CudaAccess::Find(int ordinal) {
  MutexLock lock(mutex_);
  usual_ = ordinal;
  const auto found = opened_.find(ordinal);
  if (found != opened_.end()) return found->second;
  KR_ASSIGN_OR_RETURN(const Driver* const driver, Load());
  KR_ASSIGN_OR_RETURN(auto gpu, Gpu::Open(*driver, ordinal));
  const Opened opened{std::move(gpu), std::make_shared<Pool>()};
  opened_[ordinal] = opened;
  return opened;
}

Result<std::shared_ptr<Gpu>> CudaAccess::Open(int ordinal) {
  KR_ASSIGN_OR_RETURN(const Opened opened, Find(ordinal));
  return opened.gpu;
}

Result<std::shared_ptr<const Event>> CudaAccess::Record(int ordinal,
                                                        void* stream) {
  KR_ASSIGN_OR_RETURN(const Opened opened, Find(ordinal));
  const std::shared_ptr<Pool>& pool = opened.pool;
  std::shared_ptr<CudaEvent> event;
  {
    MutexLock lock(pool->mutex);
    if (!pool->free.empty()) {
      event = std::move(pool->free.back());
      pool->free.pop_back();
    }
  }
  if (event == nullptr) {
    KR_ASSIGN_OR_RETURN(event, CudaEvent::Create(opened.gpu));
  }
  KR_RETURN_IF_ERROR(event->Record(static_cast<Stream>(stream)));
  CudaEvent* const recorded = event.get();
  return std::shared_ptr<const Event>(recorded, [pool, event](const Event*) {
    MutexLock lock(pool->mutex);
    pool->free.push_back(event);
  });
}

Result<Memory*> CudaAccess::MemoryOf(int ordinal) {
  KR_ASSIGN_OR_RETURN(const std::shared_ptr<Gpu> gpu, Open(ordinal));
  return static_cast<Memory*>(gpu.get());
}

}  // namespace keras_ring::cuda
