// MessageChannel: framed messages to and from a few peers, for the control
// plane, multiplexed on one thread by epoll.
#ifndef KERAS_RING_COMM_MESSAGE_CHANNEL_H_
#define KERAS_RING_COMM_MESSAGE_CHANNEL_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/status.h"
#include "csrc/comm/socket.h"

namespace keras_ring {

// All methods but Wake are for one thread, the loop's. A frame is a varint
// length and that many bytes; a length above the limit closes the connection
// before anything is allocated.
class MessageChannel {
 public:
  struct Event {
    enum class Kind { kMessage, kClosed };
    Kind kind = Kind::kMessage;
    int peer = -1;        // rank
    std::string message;  // kMessage
    Status status;        // kClosed: why
  };

  // Takes connected and authenticated sockets, by peer rank. `counters` must
  // outlive the channel.
  static Result<std::unique_ptr<MessageChannel>> Create(
      std::map<int, Socket> peers, size_t max_frame_bytes, Counters& counters);
  ~MessageChannel();

  // Queues a message and writes what the socket takes at once. Never blocks;
  // the rest leaves during later Polls. To a closed peer: dropped.
  void Send(int peer, std::string_view message);

  // Sleeps until a message, a closed peer, Wake() or `until` (null: no limit);
  // returns what has come, possibly nothing. Each peer is reported closed at
  // most once, after the last of its messages.
  std::vector<Event> Poll(const TimePoint* until);

  // Makes a sleeping or the next Poll return. Any thread. Costs a system call
  // only if the loop may be asleep.
  void Wake();

  // Whether everything queued by Send has been handed to the system.
  bool Flushed() const;

  // When a byte last came from `peer` (for heartbeats).
  TimePoint LastHeard(int peer) const;

 private:
  struct Connection;
  enum class SleepState { kAwake, kAsleep, kNotified };

  explicit MessageChannel(Counters& counters);
  void UpdateWatch(Connection& connection);
  Status Receive(Connection& connection, std::vector<Event>& events);
  void CloseConnection(int peer, const Status& why, std::vector<Event>& events);

  Counters& counters_;
  Socket epoll_;
  Socket wake_;
  std::atomic<SleepState> sleep_state_{SleepState::kAwake};
  // Open ones; the addresses are registered with epoll.
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::map<int, TimePoint> heard_;  // of closed ones too
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_MESSAGE_CHANNEL_H_
