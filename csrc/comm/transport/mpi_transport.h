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

#include <memory>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/running_clock.h"
#include "csrc/base/status.h"
#include "csrc/comm/transport/breakable_transport.h"
#include "csrc/comm/transport/mpi_mailbox.h"
#include "csrc/comm/transport/mpi_port.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// In general MPI does not report a lost rank: code that learns of it must call
// Abort.
class MpiTransport final : public BreakableTransport {
 public:
  // `port`: of rank `deps.rank` of `deps.size`. Where nothing moves, a rank is
  // slow.
  static Result<std::unique_ptr<MpiTransport>> Create(
      TransportDeps deps, std::unique_ptr<MpiPort> port);
  ~MpiTransport() override;

  Status Run(SendReceivePlan& plan) override;

 private:
  class Streams;
  struct Mailbox {
    MpiOutbox out;
    MpiInbox in;
  };

  MpiTransport(TransportDeps deps, Socket wake, std::unique_ptr<MpiPort> port);
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

  std::unique_ptr<MpiPort> port_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;  // by peer; null: not used
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MPI_TRANSPORT_H_
