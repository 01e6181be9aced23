// An MPI whose ranks are threads of one process. It moves bytes only while it
// is called, as strictly as the standard lets it.
#ifndef KERAS_RING_TESTING_FAKE_MPI_H_
#define KERAS_RING_TESTING_FAKE_MPI_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "csrc/comm/transport/mpi_port.h"

namespace keras_ring {

struct FakeMpiOptions {
  // Messages up to this size are copied, and are done as soon as they have been
  // started. Larger ones stay where they are until they are received.
  size_t eager_bytes = 4096;
  // Of messages between two ranks that are on their way. The others wait for
  // their sender to call.
  size_t window = 1;
};

// By rank.
std::vector<std::unique_ptr<MpiPort>> CreateFakeMpiPorts(
    int size, const FakeMpiOptions& options = {});

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_FAKE_MPI_H_
