// CallMemory: the memory of one call in flight, for the tables of its kernels.
#ifndef KERAS_RING_COLLECTIVE_CUDA_CALL_MEMORY_H_
#define KERAS_RING_COLLECTIVE_CUDA_CALL_MEMORY_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/cuda/gpu.h"

namespace keras_ring {

// For one thread, on which the device is current.
class CallMemory {
 public:
  static Result<std::unique_ptr<CallMemory>> Create(
      std::shared_ptr<cuda::Gpu> gpu);
  // Nothing of it may be in use.
  ~CallMemory();
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  // Recorded at the end of each call that uses this memory.
  const std::shared_ptr<cuda::CudaEvent>& end() const { return end_; }

  // Begins the next call; the one before it must have ended. `bytes`: of all
  // tables.
  Status Begin(size_t bytes);
  // Copies a table to the device on `stream`, and returns where it will be.
  template <typename Row>
  Result<const Row*> Upload(const std::vector<Row>& rows, cuda::Stream stream) {
    const Result<const void*> there =
        Upload(rows.data(), rows.size() * sizeof(Row), stream);
    if (!there.ok()) return there.status();
    return static_cast<const Row*>(*there);
  }

  // What Begin must reserve for a table of `rows` rows.
  template <typename Row>
  static size_t BytesOf(size_t rows) {
    return rows * sizeof(Row) + kAlignment;
  }

 private:
  static constexpr size_t kAlignment = 16;  // of a table

  CallMemory(std::shared_ptr<cuda::Gpu> gpu,
             std::shared_ptr<cuda::CudaEvent> end)
      : gpu_(std::move(gpu)), end_(std::move(end)) {}
  Result<const void*> Upload(const void* table, size_t bytes,
                             cuda::Stream stream);

  // The same bytes on the host and on the device.
  struct Block {
    char* host;
    char* device;
    size_t bytes;
  };

  const std::shared_ptr<cuda::Gpu> gpu_;
  const std::shared_ptr<cuda::CudaEvent> end_;
  // The last is used. The others were too small, and stay: to free memory of a
  // device is to wait for all of its work.
  std::vector<Block> blocks_;
  size_t used_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_CALL_MEMORY_H_
