#include "csrc/collective/cuda/peer_memory.h"

#include <unistd.h>

namespace keras_ring {

using cuda::CudaEvent;
using cuda::Driver;
using cuda::FromDevice;
using cuda::ToDevice;

PeerMemory::PeerMemory(std::shared_ptr<cuda::Gpu> gpu,
                       std::vector<PeerPage*> pages, int own)
    : gpu_(std::move(gpu)), pages_(std::move(pages)), own_(own) {}

PeerMemory::~PeerMemory() {
  const cuda::Gpu::Current current(*gpu_);
  for (const auto& [key, memory] : opened_) {
    if (IsOwnProcess(key.first)) continue;
    gpu_->driver().cuIpcCloseMemHandle(ToDevice(memory));
  }
}

bool PeerMemory::IsOwnProcess(int local_rank) const {
  return pages_[local_rank]->pid == getpid();
}

Result<DevicePlace> PeerMemory::Show(const void* memory) {
  const Driver& driver = gpu_->driver();
  unsigned long long number = 0;
  // Reserved addresses, which are backed by other calls, may have none.
  const bool is_numbered =
      driver.cuPointerGetAttribute(&number, cuda::kPointerBufferId,
                                   ToDevice(memory)) == cuda::kSuccess &&
      number != 0;
  if (is_numbered) {
    const auto found = shown_.find(number);
    if (found != shown_.end()) return PlaceOf(found->second, memory);
  }
  unsigned type = 0;
  if (driver.cuPointerGetAttribute(&type, cuda::kPointerMemoryType,
                                   ToDevice(memory)) != cuda::kSuccess ||
      type != cuda::kMemoryOfDevice) {
    return InvalidArgumentError("a tensor that was said to be on gpu:" +
                                std::to_string(gpu_->ordinal()) +
                                " is not in the memory of a device");
  }
  if (!is_numbered) return DevicePlace();
  Shown shown{DevicePlace::kNowhere, nullptr};
  cuda::DevicePointer base = 0;
  size_t bytes = 0;
  if (num_regions_ < PeerPage::kMaxRegions &&
      driver.cuMemGetAddressRange(&base, &bytes, ToDevice(memory)) ==
          cuda::kSuccess) {
    PeerPage::Region& region = pages_[own_]->regions[num_regions_];
    shown.base = region.base = static_cast<char*>(FromDevice(base));
    if (driver.cuIpcGetMemHandle(&region.handle, base) == cuda::kSuccess) {
      shown.region = num_regions_++;
    }
  }
  return PlaceOf(shown_.emplace(number, shown).first->second, memory);
}

DevicePlace PeerMemory::PlaceOf(const Shown& shown, const void* memory) {
  if (shown.region == DevicePlace::kNowhere) return DevicePlace();
  return {shown.region, static_cast<const char*>(memory) - shown.base};
}

Result<char*> PeerMemory::Open(int local_rank, const DevicePlace& place) {
  const auto key = std::make_pair(local_rank, place.region);
  auto found = opened_.find(key);
  if (found == opened_.end()) {
    const PeerPage::Region& region = pages_[local_rank]->regions[place.region];
    char* base = region.base;
    if (!IsOwnProcess(local_rank)) {
      cuda::DevicePointer opened = 0;
      KR_RETURN_IF_ERROR(KR_CUDA(gpu_->driver(), cuIpcOpenMemHandle, &opened,
                                 region.handle,
                                 cuda::kIpcLazyEnablePeerAccess));
      base = static_cast<char*>(FromDevice(opened));
    }
    found = opened_.emplace(key, base).first;
  }
  return found->second + place.offset;
}

Result<std::shared_ptr<CudaEvent>> PeerMemory::OpenEvent(
    int local_rank, const PeerPage::SharedEvent& event) {
  if (IsOwnProcess(local_rank)) return CudaEvent::Borrow(gpu_, event.own);
  return CudaEvent::Open(gpu_, event.handle);
}

}  // namespace keras_ring
