// The buffers through which an MpiTransport exchanges messages with one peer.
//
// Bytes are copied into them and out of them, so that MPI never holds memory of
// a tensor: a message cannot be cancelled, and after the loss of a rank it
// could still be written into memory that the program has long reused.
#ifndef KERAS_RING_COMM_TRANSPORT_MPI_MAILBOX_H_
#define KERAS_RING_COMM_TRANSPORT_MPI_MAILBOX_H_

#include <array>
#include <cstddef>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/comm/transport/mpi_port.h"
#include "csrc/comm/transport/stream_cursors.h"

namespace keras_ring {

// The size of a message, and the number of buffers: two, so that one is filled
// or used while the other is in flight.
inline constexpr size_t kMpiMessageBytes = size_t{128} << 10;
inline constexpr int kMpiMessages = 2;
// The number of message ids that a mailbox uses.
inline constexpr int kMpiIdsPerPeer = 2 * kMpiMessages;

// The messages to one peer.
class MpiOutbox {
 public:
  // Uses the ids from `first_id` on.
  MpiOutbox(int peer, int first_id);

  // Returns whether nothing is in flight.
  bool idle() const { return num_busy_ == 0; }
  // Sends one message with what may leave. The last message of a stream
  // completes only when the peer receives it: otherwise this rank might stop
  // calling MPI while the peer still waits for the message.
  Result<Moved> Send(MpiPort& port, SendCursor& from);
  // Message `id` has completed.
  void Done(int id);

 private:
  struct Message {
    std::unique_ptr<char[]> bytes;
    bool busy = false;
  };

  const int peer_;
  const int first_id_;
  std::array<Message, kMpiMessages> messages_;
  int num_busy_ = 0;
};

// The messages from one peer. They do not end with a collective: a receive that
// is started beyond its last message gets the first message of the next.
class MpiInbox {
 public:
  MpiInbox(int peer, int first_id);

  // Starts a receive into each buffer, once. Later calls do nothing.
  Status Open(MpiPort& port);
  // Copies bytes of the oldest message that has arrived to where the plan
  // allows them.
  Result<Moved> Take(MpiPort& port, ReceiveCursor& to);
  // Message `id` has arrived.
  void Done(int id, size_t bytes);

 private:
  struct Message {
    std::unique_ptr<char[]> bytes;
    bool here = false;
    size_t size = 0;
    size_t taken = 0;
  };

  Status Receive(MpiPort& port, int index);

  const int peer_;
  const int first_id_;
  std::array<Message, kMpiMessages> messages_;
  int next_ = 0;  // the oldest
  bool open_ = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MPI_MAILBOX_H_
