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

#include <atomic>
#include <map>
#include <memory>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/idle_limit.h"
#include "csrc/base/meter.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/running_clock.h"
#include "csrc/base/spin.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

class TcpTransport final : public Transport {
 public:
  // Takes the links with the peers that Run will name. `counters` must outlive
  // the transport. `ranks`: the set of `size` ranks that peers are counted in.
  //
  // If nothing moves, either a rank is slow, or a link is stuck. A slow rank
  // may take as long as `idle_limit` allows: a waiting rank, in a ring every
  // rank, cannot tell which one is at fault. A stuck link is known at its two
  // ends: bytes that were sent into it, or probes from its other end, are not
  // acknowledged. Both ends fail after `link_limit`, and name each other.
  // `spin`: how long Run looks for bytes before it sleeps.
  static Result<std::unique_ptr<TcpTransport>> Create(
      int rank, int size, Links peers,
      std::shared_ptr<const IdleLimit> idle_limit, Duration link_limit,
      Counters& counters, const RankSet& ranks = {}, TraceSink* trace = nullptr,
      Duration spin = Duration::zero());

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status Run(SendReceivePlan& plan) override;
  void Abort(const Status& cause) override;

 private:
  class Streams;
  struct Peer {
    Link link;
    size_t send_quantum = 0;
  };

  TcpTransport(int rank, int size, std::map<int, Peer> peers,
               std::shared_ptr<const IdleLimit> idle_limit, Duration link_limit,
               Counters& counters, const RankSet& ranks, TraceSink* trace,
               Duration spin);
  // "rank 3"
  std::string RankText(int rank) const;
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
  // Keeps the first cause, and returns it.
  Status Break(const Status& cause);

  const int rank_;
  const int size_;
  const std::map<int, Peer> peers_;
  const std::shared_ptr<const IdleLimit> idle_limit_;
  const Duration link_limit_;
  Counters& counters_;
  const Meter meter_;  // of these
  const RankSet ranks_;
  Spinner spinner_;
  Socket wake_;  // signalled by Abort, and from then on

  // Set after broken_, and read first: the loop asks at every turn.
  std::atomic<bool> is_broken_{false};
  StickyStatus broken_;  // the first cause
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_TCP_TRANSPORT_H_
