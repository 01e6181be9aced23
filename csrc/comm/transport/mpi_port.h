// MpiPort: messages between the ranks of a group, through an MPI. An interface,
// so that tests have one without MPI.
#ifndef KERAS_RING_COMM_TRANSPORT_MPI_PORT_H_
#define KERAS_RING_COMM_TRANSPORT_MPI_PORT_H_

#include <cstddef>
#include <optional>

#include "csrc/base/status.h"

namespace keras_ring {

// A message that is no longer in flight.
struct MpiDone {
  int id = -1;
  size_t bytes = 0;  // of one that was received
  Status status;
};

// Nothing here waits. The messages from one rank to another are received in the
// order in which they were sent. MPI moves bytes only while it is called.
// Otherwise transfers make no progress, not even some that MPI has reported as
// complete.
//
// One thread at a time.
class MpiPort {
 public:
  virtual ~MpiPort() = default;

  // Send and Receive start a message, with an id that no message in flight has.
  // Its memory must stay valid until it is done.
  //
  // `until_matched`: the message is done only when `peer` has matched the
  // receive; everything sent to `peer` earlier has then arrived (MPI_Issend).
  virtual Status Send(int id, int peer, const void* data, size_t bytes,
                      bool until_matched) = 0;
  // Receives the next message from `peer`, of at most `bytes`.
  virtual Status Receive(int id, int peer, void* data, size_t bytes) = 0;

  // Lets MPI move bytes, and returns a message that is done.
  virtual std::optional<MpiDone> Test() = 0;

  // Cancels the receives that were started. Returns true if nothing is in
  // flight then. Otherwise the memory of pending messages, and this object,
  // must stay valid.
  virtual bool Close() = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MPI_PORT_H_
