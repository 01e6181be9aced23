#include "csrc/comm/message_channel.h"

#include <errno.h>
#include <sys/epoll.h>

#include <utility>

#include "csrc/base/deadline.h"
#include "csrc/comm/framed_connection.h"

namespace keras_ring {
namespace {

constexpr int kMaxEpollEvents = 64;

TimePoint Now() { return std::chrono::steady_clock::now(); }

Status Watch(int epoll_fd, int operation, int fd, uint32_t events, void* what) {
  epoll_event event = {};
  event.events = events;
  event.data.ptr = what;
  if (epoll_ctl(epoll_fd, operation, fd, &event) != 0) {
    return ResourceExhaustedError("epoll_ctl: " + ErrnoText(errno));
  }
  return OkStatus();
}

}  // namespace

struct MessageChannel::Connection {
  Connection(int peer, Socket socket, size_t max_frame_bytes)
      : peer(peer), framed(std::move(socket), max_frame_bytes) {}

  const int peer;
  FramedConnection framed;
  bool watches_write = false;
};

MessageChannel::MessageChannel(Counters& counters) : counters_(counters) {}

MessageChannel::~MessageChannel() = default;

Result<std::unique_ptr<MessageChannel>> MessageChannel::Create(
    std::map<int, Socket> peers, size_t max_frame_bytes, Counters& counters) {
  std::unique_ptr<MessageChannel> channel(new MessageChannel(counters));
  channel->epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  if (!channel->epoll_.valid()) {
    return ResourceExhaustedError("epoll_create1: " + ErrnoText(errno));
  }
  KR_ASSIGN_OR_RETURN(channel->wake_, NewEventFd());
  const int epoll_fd = channel->epoll_.fd();
  // A null pointer stands for the wake-up.
  KR_RETURN_IF_ERROR(
      Watch(epoll_fd, EPOLL_CTL_ADD, channel->wake_.fd(), EPOLLIN, nullptr));
  for (auto& [peer, socket] : peers) {
    const int fd = socket.fd();
    auto connection =
        std::make_unique<Connection>(peer, std::move(socket), max_frame_bytes);
    KR_RETURN_IF_ERROR(
        Watch(epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, connection.get()));
    channel->heard_[peer] = Now();
    channel->connections_[peer] = std::move(connection);
  }
  return channel;
}

void MessageChannel::Send(int peer, std::string_view message) {
  auto it = connections_.find(peer);
  if (it == connections_.end()) return;
  Connection& connection = *it->second;
  size_t sent = connection.framed.Send(message);
  counters_.control_messages_sent.fetch_add(1, std::memory_order_relaxed);
  counters_.control_bytes_sent.fetch_add(sent, std::memory_order_relaxed);
  UpdateWatch(connection);
}

void MessageChannel::UpdateWatch(Connection& connection) {
  const bool wanted = connection.framed.wants_write();
  if (wanted == connection.watches_write) return;
  connection.watches_write = wanted;
  // Cannot fail: the descriptor is there already.
  (void)Watch(epoll_.fd(), EPOLL_CTL_MOD, connection.framed.socket().fd(),
              wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, &connection);
}

// Why no wake-up is lost. Whoever calls Wake has made its work visible before
// (under the loop's lock, say); the loop looks for work, and then calls Poll.
//
//   Wake: state <- kNotified; if it was kAsleep, write the eventfd.
//   Poll: kAwake -> kAsleep (fails if kNotified: then do not sleep); wait;
//         state <- kAwake; return, and the loop looks for work again.
//
// All are atomic exchanges, so they have one order. A Wake before Poll's first
// is seen by it; one after it finds kAsleep and writes the eventfd, which the
// wait returns for, be it before or after it began. A Wake that falls behind
// the last exchange finds kAwake and is seen by the next Poll. The eventfd may
// be written a moment after the exchange that decided to; at worst, one later
// Poll then returns with nothing.
void MessageChannel::Wake() {
  if (sleep_state_.exchange(SleepState::kNotified) == SleepState::kAsleep) {
    Signal(wake_);
  }
}

std::vector<MessageChannel::Event> MessageChannel::Poll(
    const TimePoint* until) {
  SleepState awake = SleepState::kAwake;
  const bool sleep =
      sleep_state_.compare_exchange_strong(awake, SleepState::kAsleep);
  int timeout_ms = 0;
  if (sleep) timeout_ms = until ? Deadline(*until).PollTimeoutMs() : -1;

  epoll_event ready[kMaxEpollEvents];
  int count = epoll_wait(epoll_.fd(), ready, kMaxEpollEvents, timeout_ms);
  sleep_state_.exchange(SleepState::kAwake);

  std::vector<Event> events;
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.ptr == nullptr) {
      ClearSignal(wake_);
      continue;
    }
    Connection& connection = *static_cast<Connection*>(ready[i].data.ptr);
    if ((ready[i].events & EPOLLOUT) != 0) {
      counters_.control_bytes_sent.fetch_add(connection.framed.Flush(),
                                             std::memory_order_relaxed);
    }
    Status status;
    if ((ready[i].events & ~EPOLLOUT) != 0)
      status = Receive(connection, events);
    if (status.ok()) {
      UpdateWatch(connection);
    } else {
      CloseConnection(connection.peer, status, events);
    }
  }
  return events;
}

Status MessageChannel::Receive(Connection& connection,
                               std::vector<Event>& events) {
  KR_ASSIGN_OR_RETURN(size_t got, connection.framed.Read());
  if (got == 0) return OkStatus();
  heard_[connection.peer] = Now();
  counters_.control_bytes_received.fetch_add(got, std::memory_order_relaxed);
  while (true) {
    std::string_view frame;
    KR_ASSIGN_OR_RETURN(bool whole, connection.framed.Next(&frame));
    if (!whole) return OkStatus();
    events.emplace_back();
    events.back().peer = connection.peer;
    events.back().message.assign(frame);
  }
}

void MessageChannel::CloseConnection(int peer, const Status& why,
                                     std::vector<Event>& events) {
  events.emplace_back();
  events.back().kind = Event::Kind::kClosed;
  events.back().peer = peer;
  events.back().status =
      why.WithContext("control connection with rank " + std::to_string(peer));
  connections_.erase(peer);  // closing it takes it out of the epoll set
}

bool MessageChannel::Flushed() const {
  for (const auto& [peer, connection] : connections_) {
    if (connection->framed.wants_write()) return false;
  }
  return true;
}

TimePoint MessageChannel::LastHeard(int peer) const {
  auto it = heard_.find(peer);
  KR_CHECK(it != heard_.end());
  return it->second;
}

}  // namespace keras_ring
