// MpiPort: messages between the ranks of a group, through an MPI. An interface,
// so that tests have one without MPI.
#ifndef KERAS_RING_COMM_TRANSPORT_MPI_PORT_H_
#define KERAS_RING_COMM_TRANSPORT_MPI_PORT_H_

#include <cstddef>
#include <optional>

#include "csrc/base/status.h"

namespace keras_ring {

// A message that is under way no more.
struct MpiDone {
  int id = -1;
  size_t bytes = 0;  // of one that was received
  Status status;
};

// Nothing here waits. The messages from one rank to another are received in the
// order in which they were sent. MPI moves bytes only while it is called: what
// is under way stands still otherwise, even some of what it has said is done.
//
// One thread at a time.
class MpiPort {
 public:
  virtual ~MpiPort() = default;

  // These start a message, of an id that none under way has. Its memory must
  // stay until it is done.
  //
  // `until_matched`: it is done when `peer` receives it, not before; and so has
  // all that was sent to `peer` before it come there.
  virtual Status Send(int id, int peer, const void* data, size_t bytes,
                      bool until_matched) = 0;
  // The next message from `peer`, of at most `bytes`.
  virtual Status Receive(int id, int peer, void* data, size_t bytes) = 0;

  // Has MPI move bytes, and returns a message that is done.
  virtual std::optional<MpiDone> Test() = 0;

  // Takes back what has been started to receive. Whether nothing is under way
  // then; otherwise, what is still needs its memory, and this object.
  virtual bool Close() = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MPI_PORT_H_
