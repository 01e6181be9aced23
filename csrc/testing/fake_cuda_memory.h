// The memory of the fake devices: pages that are mapped twice.
#ifndef KERAS_RING_TESTING_FAKE_CUDA_MEMORY_H_
#define KERAS_RING_TESTING_FAKE_CUDA_MEMORY_H_

#include <cstddef>
#include <map>
#include <mutex>

#include "csrc/cuda/driver.h"

namespace keras_ring::cuda::fake {

// Thread-safe.
class FakeMemory {
 public:
  ErrorCode Allocate(DevicePointer* memory, size_t bytes, int device);
  ErrorCode Free(DevicePointer memory);
  // Null unless all of it is in one allocation.
  char* Alias(DevicePointer memory, size_t bytes);
  ErrorCode Range(DevicePointer* base, size_t* bytes, DevicePointer memory);
  ErrorCode Number(unsigned long long* number, DevicePointer memory);
  ErrorCode Device(int* device, DevicePointer memory);
  ErrorCode Export(IpcMemoryHandle* handle, DevicePointer memory);
  ErrorCode Import(DevicePointer* memory, const IpcMemoryHandle& handle);

  size_t count();
  void Limit(int count);
  void MakeShareable(bool shareable);

 private:
  struct Block {
    size_t bytes;   // as asked for
    size_t mapped;  // whole pages
    char* alias;
    int descriptor;  // -1: it was imported
    unsigned long long number;
    int device;
    bool shareable;
  };
  using Blocks = std::map<DevicePointer, Block>;

  ErrorCode Map(int descriptor, size_t bytes, int device, bool owned,
                DevicePointer* memory);
  Blocks::iterator Find(DevicePointer memory);

  std::mutex mutex_;
  Blocks blocks_;
  unsigned long long numbers_ = 0;
  int left_ = -1;
  bool shareable_ = true;  // what is allocated now
};

}  // namespace keras_ring::cuda::fake

#endif  // KERAS_RING_TESTING_FAKE_CUDA_MEMORY_H_
