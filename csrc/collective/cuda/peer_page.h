// PeerPage: what the ranks of a host tell each other about their devices, in
// memory that all of them map.
#ifndef KERAS_RING_COLLECTIVE_CUDA_PEER_PAGE_H_
#define KERAS_RING_COLLECTIVE_CUDA_PEER_PAGE_H_

#include <cstddef>
#include <cstdint>

#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/cuda/driver.h"

namespace keras_ring {

// A place in device memory, as another process understands it.
struct DevicePlace {
  static constexpr int32_t kNowhere = -1;
  int32_t region = kNowhere;  // of the rank that owns the memory
  int64_t offset = 0;         // bytes
};

// Written by its rank, read by the others once the barrier has said so.
struct PeerPage {
  ProgressPage progress;

  // An event as other processes open it, and as it is in its own.
  struct SharedEvent {
    cuda::IpcEventHandle handle;
    cuda::EventHandle own;
  };
  // Calls take turns with the lanes: see IpcLane.
  static constexpr int kNumLanes = 4;
  struct Lane {
    SharedEvent written;  // the rank's arrays of a call may be read
    SharedEvent reduced;  // it has read and written those of the others
  };
  int64_t pid;
  cuda::Uuid device;
  int num_devices;  // that its process sees
  Lane lanes[kNumLanes];
  DevicePlace probe;  // memory that the others try to open
  bool usable;        // whether it can use the memory of all others
  char why_not[256];

  // An allocation of the rank. Never changed once others know its number.
  struct Region {
    cuda::IpcMemoryHandle handle;
    char* base;  // in its own process
  };
  static constexpr int kMaxRegions = 4096;
  Region regions[kMaxRegions];

  // The arrays of a call. Two calls take turns: a rank may begin the next one
  // while another rank still reads those of this one.
  struct Array {
    DevicePlace input;
    DevicePlace output;
  };
  static constexpr int kMaxArrays = 1024;
  Array arrays[2][kMaxArrays];
};

// The pages lie at `offset` of the ranks' data.
inline PeerPage& PeerPageOf(const HostGroup& group, int local_rank,
                            size_t offset) {
  return *reinterpret_cast<PeerPage*>(group.data(local_rank) + offset);
}

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_PEER_PAGE_H_
