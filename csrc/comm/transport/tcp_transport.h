// TcpTransport: the Transport over one TCP link per peer.
//
// A turn moves what each stream can move, a quantum of bytes out and what has
// arrived in, and lets the plan use it. So bytes are read, summed and sent on
// while they are in the core's cache.
//
// If little is awaited, the thread spins before it sleeps, as waking up may
// take longer than the bytes. If much is awaited, the system buffers a part of
// it meanwhile: then the thread sleeps at once, and leaves the core to others.
#ifndef KERAS_RING_COMM_TRANSPORT_TCP_TRANSPORT_H_
#define KERAS_RING_COMM_TRANSPORT_TCP_TRANSPORT_H_

#include <map>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/running_clock.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/transport/breakable_transport.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

class TcpTransport final : public BreakableTransport {
 public:
  // Takes the links with the peers that Run will name.
  //
  // If nothing moves, either a rank is slow, or a link is stuck. A stuck link
  // is known at its two ends: bytes that were sent into it, or probes from its
  // other end, are not acknowledged. Both ends fail after `deps.report_time`,
  // and name each other.
  static Result<std::unique_ptr<TcpTransport>> Create(TransportDeps deps,
                                                      Links links);

  Status Run(SendReceivePlan& plan) override;

 private:
  class Streams;
  struct Peer {
    Link link;
    size_t send_quantum = 0;
  };

  TcpTransport(TransportDeps deps, Socket wake, std::map<int, Peer> peers);
  // Waits until a stream may move, a limit has passed, or for a short while.
  Status Await(Streams& streams, const SendReceivePlan& plan,
               RunningClock& clock, TimePoint moved, Duration* next_report);
  // Spins as long as that pays. Returns whether a stream may move, or one of
  // `events` (or null) has happened.
  Result<bool> Spin(Streams& streams, PlanEvents* events);
  // Sleeps until a stream may move or one of `events` (or null) has happened,
  // or until `deadline`; returns false in the last case.
  Result<bool> Sleep(Streams& streams, PlanEvents* events, Deadline deadline);
  std::string Silence(const Streams& streams, const PlanEvents* events,
                      Duration idle) const;
  // Returns an error that names the peer of a stuck link.
  Status CheckLinks() const;
  Status CheckPeers(const SendReceivePlan& plan) const;

  const std::map<int, Peer> peers_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_TCP_TRANSPORT_H_
