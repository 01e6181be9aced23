// The buffers through which an MpiTransport exchanges messages with one peer.
//
// Bytes are copied into them and out of them, so that MPI never holds memory of
// a tensor: a message cannot be taken back, and where a rank was lost it would
// go on into memory that the program has long used for something else.
#ifndef KERAS_RING_COMM_TRANSPORT_MPI_MAILBOX_H_
#define KERAS_RING_COMM_TRANSPORT_MPI_MAILBOX_H_

#include <array>
#include <cstddef>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/comm/transport/mpi_port.h"
#include "csrc/comm/transport/stream_cursors.h"

namespace keras_ring {

// Of one message. Two, so that one is filled or used while the other moves.
inline constexpr size_t kMpiMessageBytes = size_t{128} << 10;
inline constexpr int kMpiMessages = 2;
// Ids of the messages of a mailbox.
inline constexpr int kMpiIdsPerPeer = 2 * kMpiMessages;

// The messages to one peer.
class MpiOutbox {
 public:
  // Has ids from `first_id` on.
  MpiOutbox(int peer, int first_id);

  // Whether nothing is under way.
  bool idle() const { return num_busy_ == 0; }
  // Sends one message of what may leave. The last message of a stream is done
  // once the peer receives it: whoever stopped calling MPI before could leave
  // there what the peer waits for.
  Result<Moved> Send(MpiPort& port, SendCursor& from);
  // That one is done.
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

// The messages from one peer. They do not end with a collective: what it asks
// for beyond its last message is the first of the next.
class MpiInbox {
 public:
  MpiInbox(int peer, int first_id);

  // Has all its buffers receive. Does nothing once they do.
  Status Open(MpiPort& port);
  // Copies what has come of one message to where it is allowed to lie.
  Result<Moved> Take(MpiPort& port, ReceiveCursor& to);
  // That one has come.
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
