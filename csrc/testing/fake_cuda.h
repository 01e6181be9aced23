// FakeCuda: NVIDIA's driver as tests need it, on a machine without a device.
//
// Each stream is a thread, so that work runs later than it was given, in the
// order of its stream alone. The address of device memory cannot be read or
// written by the host: that is a segmentation fault at once; a thread of a
// stream works on a second mapping of the same pages. Kernels are the
// processor's.
//
// TSAN sees what would be a race on a device: only the order that a program has
// asked for, by streams, events and synchronisation, is an order to it. The
// locks in here are hidden from it.
//
// Memory and events can be opened by other processes of the same user.
#ifndef KERAS_RING_TESTING_FAKE_CUDA_H_
#define KERAS_RING_TESTING_FAKE_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "csrc/cuda/driver.h"

namespace keras_ring::cuda {

// Devices of this process; all are alike.
inline constexpr int kFakeDevices = 2;

const Driver& FakeDriver();

// The driver that tests of devices use: the fake, or the real one if
// KERAS_RING_TEST_DRIVER is "real". Ends the process if that cannot be loaded.
const Driver& TestedDriver();
inline bool TestsRealDriver() { return &TestedDriver() != &FakeDriver(); }

namespace fake {

// Every piece of work waits for a while before it runs, up to `microseconds`,
// drawn by `seed`. 0: it does not.
void SetDelays(uint64_t seed, int microseconds);
// The next `count` allocations succeed, those after them do not. -1: all do.
void LimitAllocations(int count);
// Whether a device has another identity each time that it is asked for it, so
// that ranks which are threads of one process seem to have a device each.
void DistinctDevices(bool distinct);
// Whether other processes can open what is allocated from now on.
void MakeShareable(bool shareable);
// What was allocated and not freed.
size_t NumAllocations();
size_t NumStreams();
size_t NumEvents();
// Gives a stream work, which returns false if it meets an address that is none.
void GiveWork(Stream stream, std::function<bool()> work);
// Returns where a thread of a stream finds device memory; null if there is no
// such memory.
void* Alias(DevicePointer memory, size_t bytes);

}  // namespace fake
}  // namespace keras_ring::cuda

#endif  // KERAS_RING_TESTING_FAKE_CUDA_H_
