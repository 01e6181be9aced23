// LocalTransport: the ranks of a group in one process, over bounded pipes in
// memory.
#ifndef KERAS_RING_TESTING_LOCAL_TRANSPORT_H_
#define KERAS_RING_TESTING_LOCAL_TRANSPORT_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "csrc/comm/transport/transport.h"

namespace keras_ring {

struct LocalTransportOptions {
  // What fits between two ranks before the sender has to wait. Small enough
  // that most tests fill it: an algorithm that works only while everything
  // fits in a socket's buffer hangs here.
  size_t pipe_bytes = 1000;
  // A Run in which no byte moves for so long fails.
  std::chrono::milliseconds limit = std::chrono::seconds(30);
};

// The transports of a group, by rank. Each may be used on a thread of its own,
// and may be destroyed at any time (not while it runs): its peers then see a
// closed connection, after the bytes that were sent before.
std::vector<std::unique_ptr<Transport>> CreateLocalTransports(
    int size, const LocalTransportOptions& options = {});

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_LOCAL_TRANSPORT_H_
