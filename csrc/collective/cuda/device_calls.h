// What the collectives of devices do with every call.
#ifndef KERAS_RING_COLLECTIVE_CUDA_DEVICE_CALLS_H_
#define KERAS_RING_COLLECTIVE_CUDA_DEVICE_CALLS_H_

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/cuda/gpu.h"

namespace keras_ring {

// Returns an error if a tensor is on another device than `gpu`.
Status CheckOrdinal(const cuda::Gpu& gpu, int ordinal);

bool IsAdasum(const CollectiveArgs& args);

// Makes `stream` wait for the events of a call. A thread waits only for those
// that no stream can wait for.
Status AwaitReady(const cuda::Driver& driver, const CallArgs& call,
                  cuda::Stream stream);

// Makes a call of a collective, and waits until it is done.
Status RunNow(Collective& collective, const CollectiveArgs& args);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_DEVICE_CALLS_H_
