// The backends of tensors in the memory of NVIDIA's devices.
#ifndef KERAS_RING_COLLECTIVE_CUDA_CUDA_BACKENDS_H_
#define KERAS_RING_COLLECTIVE_CUDA_CUDA_BACKENDS_H_

#include <cstddef>

#include "csrc/collective/backend.h"

namespace keras_ring {

// By NCCL.
extern const CollectiveBackend kNcclBackend;
// The devices of one host, which read each other's memory.
extern const CollectiveBackend kCudaIpcBackend;
// Through host memory and the collective that the job has for it.
extern const CollectiveBackend kStagedBackend;

// What HostGroupLayout::data_bytes of so many ranks must have beside what
// others need.
size_t CudaIpcDataBytes(int size);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_CUDA_BACKENDS_H_
