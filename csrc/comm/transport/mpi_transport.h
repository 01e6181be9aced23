// MpiTransport: the Transport over messages of an MPI.
//
// A stream of a plan is cut into messages of what may leave at the time, up to
// a quantum; no message has bytes of two plans. The receiver has buffers posted
// for any size, so it need not know these sizes, and takes bytes from the
// buffers as the plan allows.
//
// MPI offers nothing to poll on. A waiting rank looks again: all the time while
// that pays, and then after naps that grow with the time waited. So an idle
// rank takes about a hundredth of a core.
#ifndef KERAS_RING_COMM_TRANSPORT_MPI_TRANSPORT_H_
#define KERAS_RING_COMM_TRANSPORT_MPI_TRANSPORT_H_

#include <atomic>
#include <memory>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/idle_limit.h"
#include "csrc/base/meter.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/running_clock.h"
#include "csrc/base/spin.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/mpi_mailbox.h"
#include "csrc/comm/transport/mpi_port.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// In general MPI does not report a lost rank: code that learns of it must call
// Abort.
class MpiTransport final : public Transport {
 public:
  // `port`: of rank `rank` of `size`. `counters` must outlive the transport.
  // `ranks`: those of `size`. Where nothing moves, a rank is slow: this is
  // reported after `report_time`, and takes as long as `idle_limit` allows.
  // `spin`: how long Run looks for messages before it naps.
  static Result<std::unique_ptr<MpiTransport>> Create(
      int rank, int size, std::unique_ptr<MpiPort> port,
      std::shared_ptr<const IdleLimit> idle_limit, Duration report_time,
      Counters& counters, const RankSet& ranks = {}, TraceSink* trace = nullptr,
      Duration spin = Duration::zero());
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status Run(SendReceivePlan& plan) override;
  void Abort(const Status& cause) override;

 private:
  class Streams;
  struct Mailbox {
    MpiOutbox out;
    MpiInbox in;
  };

  MpiTransport(int rank, int size, std::unique_ptr<MpiPort> port,
               std::shared_ptr<const IdleLimit> idle_limit,
               Duration report_time, Counters& counters, const RankSet& ranks,
               TraceSink* trace, Duration spin);
  Status CheckPeers(const SendReceivePlan& plan) const;
  Mailbox& MailboxOf(int peer);
  // Takes note of the messages that are done. Whether there were any.
  Result<bool> Look();
  // One turn: what may leave, what is done, what has come. Whether there was
  // anything.
  Result<bool> Move(Streams& streams);
  // Waits until a message is done, an event has happened, or a nap is over.
  Status Await(const Streams& streams, const SendReceivePlan& plan,
               RunningClock& clock, TimePoint moved, Duration* next_report);
  void Nap(PlanEvents* events, Duration time);
  // Keeps the first cause, and returns it.
  Status Break(const Status& cause);

  const int rank_;
  const int size_;
  std::unique_ptr<MpiPort> port_;
  const std::shared_ptr<const IdleLimit> idle_limit_;
  const Duration report_time_;
  Counters& counters_;
  const Meter meter_;  // of these
  const RankSet ranks_;
  Spinner spinner_;
  Socket wake_;                                      // as TcpTransport's
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // by peer; null: not used

  // Set after broken_, and read first: the loop asks at every turn.
  std::atomic<bool> is_broken_{false};
  StickyStatus broken_;  // the first cause
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MPI_TRANSPORT_H_
