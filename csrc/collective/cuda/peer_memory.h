// PeerMemory: device memory that the ranks of a host show each other.
#ifndef KERAS_RING_COLLECTIVE_CUDA_PEER_MEMORY_H_
#define KERAS_RING_COLLECTIVE_CUDA_PEER_MEMORY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/cuda/peer_page.h"
#include "csrc/cuda/gpu.h"

namespace keras_ring {

// What is shown is a whole allocation, such as a region of a framework's
// allocator, so each is opened once. For one thread, on which the device is
// current.
class PeerMemory {
 public:
  // `pages`: by local rank; `own`: which of them is this rank's.
  PeerMemory(std::shared_ptr<cuda::Gpu> gpu, std::vector<PeerPage*> pages,
             int own);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // Returns the place of `memory` for the others; kNowhere if they cannot open
  // it: it comes from a pool of the driver, is mapped to reserved addresses, or
  // there are too many allocations. kInvalidArgument: it is of no device.
  Result<DevicePlace> Show(const void* memory);

  // Returns the address of another rank's memory.
  Result<char*> Open(int local_rank, const DevicePlace& place);
  Result<std::shared_ptr<cuda::CudaEvent>> OpenEvent(
      int local_rank, const PeerPage::SharedEvent& event);

 private:
  struct Shown {
    int32_t region;
    const char* base;
  };

  static DevicePlace PlaceOf(const Shown& shown, const void* memory);
  bool IsOwnProcess(int local_rank) const;

  const std::shared_ptr<cuda::Gpu> gpu_;
  const std::vector<PeerPage*> pages_;
  const int own_;
  // By the driver's number of the allocation, which is never used again: an
  // address may be.
  std::map<unsigned long long, Shown> shown_;
  int num_regions_ = 0;
  // By rank and region.
  std::map<std::pair<int, int32_t>, char*> opened_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_PEER_MEMORY_H_
