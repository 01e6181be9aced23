// DeadlineEvents: ends the run of a plan at a deadline, where nothing else
// would.
#ifndef KERAS_RING_COMM_TRANSPORT_DEADLINE_EVENTS_H_
#define KERAS_RING_COMM_TRANSPORT_DEADLINE_EVENTS_H_

#include <string>
#include <utility>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

class DeadlineEvents final : public PlanEvents {
 public:
  // `what` could not be done in time: the text of the error.
  static Result<DeadlineEvents> Create(Deadline deadline, std::string what) {
    KR_ASSIGN_OR_RETURN(Socket bell, NewEventFd());
    return DeadlineEvents(std::move(bell), deadline, std::move(what));
  }

  bool Happened() override { return false; }
  int descriptor() const override { return bell_.fd(); }
  bool Arm() override { return true; }
  void Disarm() override {}
  Status Check() override {
    if (!deadline_.expired()) return OkStatus();
    return DeadlineExceededError(what_ + " could not be done in time");
  }
  std::string Awaited() const override { return ""; }

 private:
  DeadlineEvents(Socket bell, Deadline deadline, std::string what)
      : bell_(std::move(bell)), deadline_(deadline), what_(std::move(what)) {}

  Socket bell_;  // never rung
  Deadline deadline_;
  std::string what_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_DEADLINE_EVENTS_H_
