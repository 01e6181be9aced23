// CudaAccess: the NVIDIA devices that this process uses.
#ifndef KERAS_RING_CUDA_CUDA_ACCESS_H_
#define KERAS_RING_CUDA_CUDA_ACCESS_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/cuda/driver.h"
#include "csrc/cuda/gpu.h"
#include "csrc/device/device_access.h"

namespace keras_ring::cuda {

class CudaAccess final : public DeviceAccess {
 public:
  // `library`: that of the driver.
  explicit CudaAccess(std::string library) : library_(std::move(library)) {}
  // `driver` must outlive the object.
  explicit CudaAccess(const Driver& driver) : driver_(&driver) {}

  // kFailedPrecondition: there is no driver; kInvalidArgument: no such device.
  Result<std::shared_ptr<Gpu>> Open(int ordinal) KR_EXCLUDES(mutex_);

  // DeviceAccess.
  Status CheckAny() override;
  Status Check(int ordinal) override { return Open(ordinal).status(); }
  Result<std::shared_ptr<const Event>> Record(int ordinal,
                                              void* stream) override;
  Result<Memory*> MemoryOf(int ordinal) override;
  int UsualOrdinal() const override { return usual_; }

 private:
  // Events that can be recorded again, of one device. They are given back when
  // nobody waits for them any more, perhaps after this object is gone.
  struct Pool {
    Mutex mutex;
    std::vector<std::shared_ptr<CudaEvent>> free KR_GUARDED_BY(mutex);
  };
  struct Opened {
    std::shared_ptr<Gpu> gpu;
    std::shared_ptr<Pool> pool;
  };

  Result<const Driver*> Load() KR_REQUIRES(mutex_);
  Result<Opened> Find(int ordinal) KR_EXCLUDES(mutex_);

  const std::string library_;
  Mutex mutex_;
  const Driver* driver_ KR_GUARDED_BY(mutex_) = nullptr;
  std::map<int, Opened> opened_ KR_GUARDED_BY(mutex_);
  std::atomic<int> usual_{0};
};

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_CUDA_ACCESS_H_
