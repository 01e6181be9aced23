// What every Transport must do: one suite, run on each implementation, the
// fake included.
#ifndef KERAS_RING_TESTING_TRANSPORT_CONFORMANCE_H_
#define KERAS_RING_TESTING_TRANSPORT_CONFORMANCE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Makes the connected transports of a group, by rank. Each may be destroyed
// at any time when it is not running.
using TransportFactory = std::function<std::vector<std::unique_ptr<Transport>>(
    int size, std::chrono::milliseconds idle_limit)>;

struct TransportTraits {
  // Whether the peers of one that is destroyed see a closed connection.
  bool sees_lost_peers = true;
};

namespace transport_conformance {

// A SendReceivePlan over whole messages in segments, everything released. `out`
// and `in` must outlive it.
SendReceivePlan Whole(uint64_t tag, int to, std::vector<uint8_t>& out, int from,
                      std::vector<uint8_t>& in, size_t segment);

// Events that a test makes happen, from any thread.
class ManualEvents final : public PlanEvents {
 public:
  ManualEvents();

  void Happen();
  // A signal of what has been seen long since.
  void SignalLate() { Signal(bell_); }
  void Fail() { failed_ = true; }  // so does Check from now on

  // For `advance`: what has happened so far is seen.
  int Look() { return seen_ = happened_; }
  int times_armed() const { return times_armed_; }

  bool Happened() override { return happened_ != seen_; }
  int descriptor() const override { return bell_.fd(); }
  bool Arm() override;
  void Disarm() override { ClearSignal(bell_); }
  Status Check() override;
  std::string Awaited() const override { return "for the test"; }

 private:
  Socket bell_;
  std::atomic<int> happened_{0};
  std::atomic<int> times_armed_{0};
  int seen_ = 0;
  std::atomic<bool> failed_{false};
};

}  // namespace transport_conformance

// Runs the whole suite; failures are reported through gtest.
void RunTransportConformance(const TransportFactory& factory,
                             const TransportTraits& traits = {});

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_TRANSPORT_CONFORMANCE_H_
