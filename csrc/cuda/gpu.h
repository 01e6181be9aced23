// Gpu: one device of this process, with what its streams, events and memory are
// made from.
#ifndef KERAS_RING_CUDA_GPU_H_
#define KERAS_RING_CUDA_GPU_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/cuda/driver.h"
#include "csrc/device/event.h"
#include "csrc/device/memory.h"

namespace keras_ring::cuda {

// Uses the primary context, which all frameworks of the process share.
// Thread-safe.
class Gpu final : public Memory {
 public:
  // `driver` must outlive the object. kInvalidArgument: there is no such
  // ordinal.
  static Result<std::shared_ptr<Gpu>> Open(const Driver& driver, int ordinal);
  ~Gpu() override;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const Driver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  DeviceNumber number() const { return number_; }
  const std::string& name() const { return name_; }  // "NVIDIA H100 80GB HBM3"
  const Uuid& uuid() const { return uuid_; }
  int multiprocessors() const { return multiprocessors_; }

  // While it exists, functions of the driver that are called by this thread
  // refer to the device.
  class Current {
   public:
    explicit Current(const Gpu& gpu);
    ~Current();
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    // An error if the device cannot be used.
    const Status& status() const { return status_; }

   private:
    const Driver& driver_;
    Status status_;
  };

  // Fixed host memory, which the device copies from and to without a staging
  // copy of its own.
  Result<void*> AllocateHost(size_t bytes);
  void FreeHost(void* memory);

  // Memory.
  Result<void*> Allocate(size_t bytes) override;
  void Free(void* memory) override;
  Status Write(void* to, const void* from_host, size_t bytes) override;
  Status Read(void* to_host, const void* from, size_t bytes) override;

 private:
  Gpu(const Driver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  Status Initialize();

  const Driver& driver_;
  const int ordinal_;
  DeviceNumber number_ = 0;
  Context context_ = nullptr;
  std::string name_;
  Uuid uuid_ = {};
  int multiprocessors_ = 1;
};

// A stream of ours: work on it runs in the order in which it was given.
class OwnStream {
 public:
  // Of the highest priority: what others wait for goes before what they do
  // meanwhile.
  static Result<OwnStream> Create(std::shared_ptr<Gpu> gpu);
  OwnStream(OwnStream&& other) noexcept
      : gpu_(std::move(other.gpu_)),
        stream_(std::exchange(other.stream_, nullptr)) {}
  OwnStream& operator=(OwnStream&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnStream();  // what was given to it is still done

  Stream get() const { return stream_; }

 private:
  OwnStream(std::shared_ptr<Gpu> gpu, Stream stream)
      : gpu_(std::move(gpu)), stream_(stream) {}

  std::shared_ptr<Gpu> gpu_;
  Stream stream_ = nullptr;
};

// An event of ours, which can be recorded again and again.
class CudaEvent final : public Event {
 public:
  // `flags`: beside the one that no time is taken.
  static Result<std::shared_ptr<CudaEvent>> Create(std::shared_ptr<Gpu> gpu,
                                                   unsigned flags = 0);
  // One that another process has made.
  static Result<std::shared_ptr<CudaEvent>> Open(std::shared_ptr<Gpu> gpu,
                                                 const IpcEventHandle& handle);
  // One that somebody else owns.
  static std::shared_ptr<CudaEvent> Borrow(std::shared_ptr<Gpu> gpu,
                                           EventHandle handle);
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override;

  EventHandle get() const { return event_; }
  // From now on it is reached when all is done that `stream` was given so far.
  Status Record(Stream stream);
  // Returns whether it is reached; so is one that was never recorded.
  Result<bool> Reached() const;
  Status Wait() const override;
  void* native() const override { return event_; }

 private:
  CudaEvent(std::shared_ptr<Gpu> gpu, EventHandle event, bool owned)
      : gpu_(std::move(gpu)), event_(event), owned_(owned) {}

  const std::shared_ptr<Gpu> gpu_;
  const EventHandle event_;
  const bool owned_;
};

inline DevicePointer ToDevice(const void* memory) {
  return reinterpret_cast<DevicePointer>(memory);
}
inline void* FromDevice(DevicePointer memory) {
  return reinterpret_cast<void*>(memory);
}

}  // namespace keras_ring::cuda

#endif  // KERAS_RING_CUDA_GPU_H_
