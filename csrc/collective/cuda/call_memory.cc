#include "csrc/collective/cuda/call_memory.h"

#include <algorithm>
#include <cstring>

#include "csrc/base/round.h"

namespace keras_ring {
namespace {

constexpr size_t kMinBytes = size_t{16} << 10;

}  // namespace

Result<std::unique_ptr<CallMemory>> CallMemory::Create(
    std::shared_ptr<cuda::Gpu> gpu) {
  KR_ASSIGN_OR_RETURN(auto end, cuda::CudaEvent::Create(gpu));
  return std::unique_ptr<CallMemory>(
      new CallMemory(std::move(gpu), std::move(end)));
}

CallMemory::~CallMemory() {
  for (const Block& block : blocks_) {
    if (block.host != nullptr) gpu_->FreeHost(block.host);
    if (block.device != nullptr) gpu_->Free(block.device);
  }
}

Status CallMemory::Begin(size_t bytes) {
  used_ = 0;
  const size_t capacity = blocks_.empty() ? 0 : blocks_.back().bytes;
  if (bytes <= capacity) return OkStatus();
  Block& block = blocks_.emplace_back();
  block = {nullptr, nullptr, std::max({kMinBytes, bytes, 2 * capacity})};
  KR_ASSIGN_OR_RETURN(void* const host, gpu_->AllocateHost(block.bytes));
  block.host = static_cast<char*>(host);
  KR_ASSIGN_OR_RETURN(void* const device, gpu_->Allocate(block.bytes));
  block.device = static_cast<char*>(device);
  return OkStatus();
}

Result<const void*> CallMemory::Upload(const void* table, size_t bytes,
                                       cuda::Stream stream) {
  const Block& block = blocks_.back();
  KR_CHECK(used_ + bytes <= block.bytes);
  char* const host = block.host + used_;
  char* const device = block.device + used_;
  std::memcpy(host, table, bytes);
  used_ += RoundUp(bytes, kAlignment);
  KR_RETURN_IF_ERROR(KR_CUDA(gpu_->driver(), cuMemcpyHtoDAsync,
                             cuda::ToDevice(device), host, bytes, stream));
  return static_cast<const void*>(device);
}

}  // namespace keras_ring
