#include "csrc/testing/fake_cuda_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "csrc/base/round.h"
#include "csrc/testing/fake_cuda_hidden.h"

namespace keras_ring::cuda::fake {
namespace {

constexpr size_t kPage = 4096;

struct Handle {
  int64_t pid;
  int64_t descriptor;
  uint64_t bytes;
};
static_assert(sizeof(Handle) <= sizeof(IpcMemoryHandle));

}  // namespace

ErrorCode FakeMemory::Map(int descriptor, size_t bytes, int device, bool owned,
                          DevicePointer* memory) {
  const size_t mapped = RoundUp(bytes, kPage);
  void* const there =
      mmap(nullptr, mapped, PROT_NONE, MAP_SHARED, descriptor, 0);
  void* const alias =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (there == MAP_FAILED || alias == MAP_FAILED) return kOutOfMemory;
  *memory = reinterpret_cast<DevicePointer>(there);
  blocks_[*memory] = {bytes,
                      mapped,
                      static_cast<char*>(alias),
                      owned ? descriptor : -1,
                      ++numbers_,
                      device,
                      shareable_};
  return kSuccess;
}

ErrorCode FakeMemory::Allocate(DevicePointer* memory, size_t bytes,
                               int device) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes == 0) return kInvalidValue;
  if (left_ == 0) return kOutOfMemory;
  if (left_ > 0) --left_;
  const int descriptor = memfd_create("fake-gpu", MFD_CLOEXEC);
  if (descriptor < 0) return kOutOfMemory;
  if (ftruncate(descriptor, static_cast<off_t>(RoundUp(bytes, kPage))) != 0) {
    close(descriptor);
    return kOutOfMemory;
  }
  return Map(descriptor, bytes, device, /*owned=*/true, memory);
}

ErrorCode FakeMemory::Free(DevicePointer memory) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return kInvalidValue;
  const Block& block = found->second;
  munmap(reinterpret_cast<void*>(memory), block.mapped);
  munmap(block.alias, block.mapped);
  if (block.descriptor >= 0) close(block.descriptor);
  blocks_.erase(found);
  return kSuccess;
}

FakeMemory::Blocks::iterator FakeMemory::Find(DevicePointer memory) {
  auto found = blocks_.upper_bound(memory);
  if (found == blocks_.begin()) return blocks_.end();
  --found;
  return memory - found->first < found->second.mapped ? found : blocks_.end();
}

char* FakeMemory::Alias(DevicePointer memory, size_t bytes) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = Find(memory);
  if (found == blocks_.end()) return nullptr;
  const size_t offset = memory - found->first;
  if (offset + bytes > found->second.bytes) return nullptr;
  return found->second.alias + offset;
}

ErrorCode FakeMemory::Range(DevicePointer* base, size_t* bytes,
                            DevicePointer memory) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = Find(memory);
  if (found == blocks_.end()) return kNotFound;
  *base = found->first;
  *bytes = found->second.bytes;
  return kSuccess;
}

ErrorCode FakeMemory::Number(unsigned long long* number, DevicePointer memory) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = Find(memory);
  if (found == blocks_.end()) return kInvalidValue;
  *number = found->second.number;
  return kSuccess;
}

ErrorCode FakeMemory::Device(int* device, DevicePointer memory) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = Find(memory);
  if (found == blocks_.end()) return kInvalidValue;
  *device = found->second.device;
  return kSuccess;
}

ErrorCode FakeMemory::Export(IpcMemoryHandle* handle, DevicePointer memory) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = Find(memory);
  if (found == blocks_.end() || !found->second.shareable) return kInvalidValue;
  const Handle content{getpid(), found->second.descriptor, found->second.bytes};
  if (content.descriptor < 0) return kInvalidValue;
  std::memcpy(handle, &content, sizeof(content));
  return kSuccess;
}

ErrorCode FakeMemory::Import(DevicePointer* memory,
                             const IpcMemoryHandle& handle) {
  const Hidden hidden;
  const std::lock_guard<std::mutex> lock(mutex_);
  Handle content;
  std::memcpy(&content, &handle, sizeof(content));
  // As the real one: a handle is for other processes.
  if (content.pid == getpid()) return kInvalidContext;
  const std::string path = "/proc/" + std::to_string(content.pid) + "/fd/" +
                           std::to_string(content.descriptor);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return kInvalidValue;
  const ErrorCode code =
      Map(descriptor, content.bytes, /*device=*/0, /*owned=*/false, memory);
  close(descriptor);
  return code;
}

size_t FakeMemory::count() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return blocks_.size();
}

void FakeMemory::Limit(int count) {
  const std::lock_guard<std::mutex> lock(mutex_);
  left_ = count;
}

void FakeMemory::MakeShareable(bool shareable) {
  const std::lock_guard<std::mutex> lock(mutex_);
  shareable_ = shareable;
}

}  // namespace keras_ring::cuda::fake
