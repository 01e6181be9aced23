// FakeNccl: NCCL among ranks that are threads of one process, on the fake
// device (fake_cuda.h).
//
// As the real one: calls of a group begin at its end, a call ends on a stream
// when the streams of all ranks have reached theirs, ranks that make other
// calls wait for ever, nothing is summed in the order of the ranks, and calls
// of a communicator that does not block may have been taken only later. An
// abort ends what is in flight.
#ifndef KERAS_RING_TESTING_FAKE_NCCL_H_
#define KERAS_RING_TESTING_FAKE_NCCL_H_

#include <cstddef>

#include "csrc/cuda/nccl.h"

namespace keras_ring::cuda {

const Nccl& FakeNccl();

namespace fake {

// Communicators that were made and not destroyed.
size_t NumComms();

}  // namespace fake
}  // namespace keras_ring::cuda

#endif  // KERAS_RING_TESTING_FAKE_NCCL_H_
