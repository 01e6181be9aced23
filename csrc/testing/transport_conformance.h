// What every Transport must do: one suite, run on each implementation, the
// fake included.
#ifndef KERAS_RING_TESTING_TRANSPORT_CONFORMANCE_H_
#define KERAS_RING_TESTING_TRANSPORT_CONFORMANCE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Makes the connected transports of a group, by rank. Each may be destroyed
// at any time when it is not running; its peers then see a closed connection.
using TransportFactory = std::function<std::vector<std::unique_ptr<Transport>>(
    int size, std::chrono::milliseconds idle_limit)>;

namespace transport_conformance {

// A SendReceivePlan over whole messages in segments, everything released. `out`
// and `in` must outlive it.
SendReceivePlan Whole(uint64_t tag, int to, std::vector<uint8_t>& out, int from,
                      std::vector<uint8_t>& in, size_t segment);

}  // namespace transport_conformance

// Runs the whole suite; failures are reported through gtest.
void RunTransportConformance(const TransportFactory& factory);

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_TRANSPORT_CONFORMANCE_H_
