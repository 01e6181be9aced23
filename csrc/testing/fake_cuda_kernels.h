// The kernels, as the processor does them.
#ifndef KERAS_RING_TESTING_FAKE_CUDA_KERNELS_H_
#define KERAS_RING_TESTING_FAKE_CUDA_KERNELS_H_

#include <functional>
#include <string>

#include "csrc/cuda/driver.h"

namespace keras_ring::cuda::fake {

// Returns where a thread of a stream finds device memory, or null.
using FindAlias = std::function<char*(const void* memory, size_t bytes)>;

// Returns what a launch of `kernel` does, with the arguments that it has now;
// it returns false if it meets an address that is none. Empty: there is no such
// kernel.
std::function<bool()> KernelWork(const std::string& kernel, void** parameters,
                                 const FindAlias& alias);

}  // namespace keras_ring::cuda::fake

#endif  // KERAS_RING_TESTING_FAKE_CUDA_KERNELS_H_
