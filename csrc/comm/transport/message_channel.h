// MessageChannel: framed messages to and from a few peers, for the control
// plane, multiplexed on one thread: through shared memory with those of the
// same host, by TCP with the others.
#ifndef KERAS_RING_COMM_TRANSPORT_MESSAGE_CHANNEL_H_
#define KERAS_RING_COMM_TRANSPORT_MESSAGE_CHANNEL_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/rank_set.h"
#include "csrc/base/spin.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_checker.h"
#include "csrc/comm/host/doorbell.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"

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

  // Messages with the peers in `host` (null: there are none) go through its
  // memory; their links then only show when a peer is gone. `counters`, `host`
  // and `clock` must outlive the channel. `spin`: how long Poll may look for
  // messages before it sleeps. `ranks`: the set that peers are counted in.
  // `clock`: the clock of `until` and LastHeard.
  static Result<std::unique_ptr<MessageChannel>> Create(
      Links peers, size_t max_frame_bytes, Counters& counters,
      const HostGroup* host = nullptr, Duration spin = Duration::zero(),
      const RankSet& ranks = {}, const Clock& clock = SystemTime());
  ~MessageChannel();

  // Hands the channel over to another thread.
  void DetachFromThread() { thread_.Detach(); }

  // Queues a message and writes at once what the link takes. Never blocks; the
  // rest leaves during later Polls. A message to a closed peer is dropped.
  void Send(int peer, std::string_view message);

  // Sleeps until a message arrives, a peer closes, Wake() is called or `until`
  // (null: no limit) has come; returns the events, possibly none. Each peer is
  // reported closed at most once, after the last of its messages.
  std::vector<Event> Poll(const TimePoint* until);

  // Makes a sleeping or the next Poll return. Any thread. Costs a system call
  // only if the loop may be asleep.
  void Wake();

  // Returns whether everything queued by Send has been handed to the system.
  bool Flushed() const;

  // Returns when a byte last came from `peer` (for heartbeats).
  TimePoint LastHeard(int peer) const;

 private:
  struct Connection;

  MessageChannel(Counters& counters, Duration spin, const RankSet& ranks,
                 const Clock& clock);
  void UpdateWatch(Connection& connection);
  // Looks for messages as long as that pays. Returns whether the bell has rung,
  // and no socket was found ready before.
  bool Spin();
  void Sleep(const TimePoint* until, std::vector<Event>& events);
  void HandleReady(Connection& connection, uint32_t ready,
                   std::vector<Event>& events);
  Status Receive(Connection& connection, std::vector<Event>& events);
  void ReceiveLocally(std::vector<Event>& events);
  template <typename Link>
  Status Deliver(int peer, size_t bytes, Link& link,
                 std::vector<Event>& events);
  void CloseConnection(int peer, const Status& why, std::vector<Event>& events);

  int TimeoutMs(const TimePoint* until) const;

  Counters& counters_;
  const RankSet ranks_;
  const Clock& clock_;
  ThreadChecker thread_;
  Socket epoll_;
  // Rung by Wake and by peers of the host: if there are any, the bell in the
  // host's memory is used.
  Doorbell own_bell_;
  Socket own_bell_fd_;
  Doorbell* bell_ = &own_bell_;
  const Socket* bell_fd_ = &own_bell_fd_;
  Spinner spinner_;
  TimePoint last_look_{};  // at the sockets
  // The open connections; their addresses are registered with epoll.
  std::map<int, std::unique_ptr<Connection>> connections_;
  size_t num_local_ = 0;            // those through shared memory
  std::map<int, TimePoint> heard_;  // of closed ones too
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MESSAGE_CHANNEL_H_
