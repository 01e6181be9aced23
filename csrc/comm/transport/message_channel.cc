#include "csrc/comm/transport/message_channel.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>

#include <optional>
#include <utility>

#include "csrc/base/deadline.h"
#include "csrc/comm/net/framed_connection.h"
#include "csrc/comm/transport/local_link.h"

namespace keras_ring {
namespace {

constexpr int kMaxEpollEvents = 64;

// A look at the sockets is a system call, one at the bell is not.
constexpr int kLooksPerSocketLook = 16;

// How long the sockets may go unlooked at while the bell rings and rings.
constexpr Duration kLookInterval = std::chrono::milliseconds(1);

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
  Connection(int peer, Link link, size_t max_frame_bytes)
      : peer(peer), framed(std::move(link), max_frame_bytes) {}

  bool wants_write() const {
    return local ? local->wants_write() : framed.wants_write();
  }

  const int peer;
  FramedConnection framed;
  std::optional<LocalLink> local;
  bool watches_write = false;
};

MessageChannel::MessageChannel(Counters& counters, Duration spin,
                               const RankSet& ranks, const Clock& clock)
    : counters_(counters), ranks_(ranks), clock_(clock), spinner_(spin) {}

MessageChannel::~MessageChannel() = default;

Result<std::unique_ptr<MessageChannel>> MessageChannel::Create(
    Links peers, size_t max_frame_bytes, Counters& counters,
    const HostGroup* host, Duration spin, const RankSet& ranks,
    const Clock& clock) {
  std::unique_ptr<MessageChannel> channel(
      new MessageChannel(counters, spin, ranks, clock));
  channel->epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
  if (!channel->epoll_.valid()) {
    return ResourceExhaustedError("epoll_create1: " + ErrnoText(errno));
  }
  if (host != nullptr) {
    channel->bell_ = &ControlPage::Of(*host, host->local_rank()).bell;
    channel->bell_fd_ = &host->bell(host->local_rank());
  } else {
    KR_ASSIGN_OR_RETURN(channel->own_bell_fd_, NewEventFd());
  }
  const int epoll_fd = channel->epoll_.fd();
  // A null pointer stands for the bell.
  KR_RETURN_IF_ERROR(Watch(epoll_fd, EPOLL_CTL_ADD, channel->bell_fd_->fd(),
                           EPOLLIN, nullptr));
  for (auto& [peer, link] : peers) {
    const int fd = link.socket().fd();
    auto connection =
        std::make_unique<Connection>(peer, std::move(link), max_frame_bytes);
    const int local_rank = host != nullptr ? host->LocalRankOf(peer) : -1;
    if (local_rank >= 0) {
      connection->local.emplace(*host, local_rank, max_frame_bytes);
      ++channel->num_local_;
    }
    KR_RETURN_IF_ERROR(
        Watch(epoll_fd, EPOLL_CTL_ADD, fd, EPOLLIN, connection.get()));
    channel->heard_[peer] = clock.Now();
    channel->connections_[peer] = std::move(connection);
  }
  return channel;
}

void MessageChannel::Send(int peer, std::string_view message) {
  KR_DCHECK(thread_.IsOwner());
  auto it = connections_.find(peer);
  if (it == connections_.end()) return;
  Connection& connection = *it->second;
  size_t sent = connection.local ? connection.local->Send(message)
                                 : connection.framed.Send(message);
  counters_.control_messages_sent.fetch_add(1, std::memory_order_relaxed);
  counters_.control_bytes_sent.fetch_add(sent, std::memory_order_relaxed);
  if (!connection.local) UpdateWatch(connection);
}

void MessageChannel::UpdateWatch(Connection& connection) {
  const bool wanted = connection.framed.wants_write();
  if (wanted == connection.watches_write) return;
  connection.watches_write = wanted;
  // Cannot fail: the descriptor is there already.
  (void)Watch(epoll_.fd(), EPOLL_CTL_MOD, connection.framed.socket().fd(),
              wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, &connection);
}

void MessageChannel::Wake() { bell_->Notify(*bell_fd_); }

std::vector<MessageChannel::Event> MessageChannel::Poll(
    const TimePoint* until) {
  KR_DCHECK(thread_.IsOwner());
  std::vector<Event> events;
  // The bell says nothing of the sockets: one must look at them now and then
  // even when it never falls silent.
  const bool may_spin = until == nullptr || *until > clock_.Now();
  const bool rung = may_spin && Spin();
  if (!rung || clock_.Now() - last_look_ > kLookInterval) {
    Sleep(until, events);
  } else {
    bell_->WakeUp();
  }
  ReceiveLocally(events);
  return events;
}

bool MessageChannel::Spin() {
  const bool has_sockets = connections_.size() > num_local_;
  bool socket_ready = false;
  int looks = 0;
  (void)spinner_.Until([&] {
    if (bell_->IsNotified()) return true;
    if (!has_sockets || ++looks % kLooksPerSocketLook != 0) return false;
    pollfd entry = {epoll_.fd(), POLLIN, 0};
    socket_ready = poll(&entry, 1, 0) > 0;
    return socket_ready;
  });
  return !socket_ready && bell_->IsNotified();
}

int MessageChannel::TimeoutMs(const TimePoint* until) const {
  if (until == nullptr) return -1;
  return Deadline::After(*until - clock_.Now()).PollTimeoutMs();
}

void MessageChannel::Sleep(const TimePoint* until, std::vector<Event>& events) {
  const bool sleep = bell_->FallAsleep();
  const int timeout_ms = sleep ? TimeoutMs(until) : 0;

  epoll_event ready[kMaxEpollEvents];
  const int count = epoll_wait(epoll_.fd(), ready, kMaxEpollEvents, timeout_ms);
  bell_->WakeUp();
  last_look_ = clock_.Now();

  for (int i = 0; i < count; ++i) {
    if (ready[i].data.ptr == nullptr) {
      ClearSignal(*bell_fd_);
    } else {
      HandleReady(*static_cast<Connection*>(ready[i].data.ptr), ready[i].events,
                  events);
    }
  }
}

void MessageChannel::HandleReady(Connection& connection, uint32_t ready,
                                 std::vector<Event>& events) {
  if ((ready & EPOLLOUT) != 0) {
    counters_.control_bytes_sent.fetch_add(connection.framed.Flush(),
                                           std::memory_order_relaxed);
  }
  Status status;
  if ((ready & ~EPOLLOUT) != 0) status = Receive(connection, events);
  if (status.ok()) {
    UpdateWatch(connection);
  } else {
    CloseConnection(connection.peer, status, events);
  }
}

Status MessageChannel::Receive(Connection& connection,
                               std::vector<Event>& events) {
  Result<size_t> got = connection.framed.Read();
  if (connection.local) {
    // The only event on this socket is that the peer is gone. Messages that it
    // sent before must still be read and handled: the next poll reports the
    // event again.
    if (got.ok()) {
      return *got == 0 ? OkStatus() : InternalError("unexpected bytes");
    }
    KR_ASSIGN_OR_RETURN(size_t last, connection.local->Read());
    if (last == 0) return got.status();
    return Deliver(connection.peer, last, *connection.local, events);
  }
  KR_RETURN_IF_ERROR(got.status());
  return Deliver(connection.peer, *got, connection.framed, events);
}

void MessageChannel::ReceiveLocally(std::vector<Event>& events) {
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& connection = *(it++)->second;  // it may be closed below
    if (!connection.local) continue;
    connection.local->Flush();
    if (!connection.local->readable()) continue;
    Result<size_t> got = connection.local->Read();
    Status status = got.status();
    if (status.ok()) {
      status = Deliver(connection.peer, *got, *connection.local, events);
    }
    if (!status.ok()) CloseConnection(connection.peer, status, events);
  }
}

template <typename Link>
Status MessageChannel::Deliver(int peer, size_t bytes, Link& link,
                               std::vector<Event>& events) {
  if (bytes == 0) return OkStatus();
  heard_[peer] = clock_.Now();
  counters_.control_bytes_received.fetch_add(bytes, std::memory_order_relaxed);
  while (true) {
    std::string_view frame;
    KR_ASSIGN_OR_RETURN(bool whole, link.Next(&frame));
    if (!whole) return OkStatus();
    events.emplace_back();
    events.back().peer = peer;
    events.back().message.assign(frame);
  }
}

void MessageChannel::CloseConnection(int peer, const Status& why,
                                     std::vector<Event>& events) {
  events.emplace_back();
  events.back().kind = Event::Kind::kClosed;
  events.back().peer = peer;
  events.back().status = why.WithContext("control connection with rank " +
                                         std::to_string(ranks_.Global(peer)));
  auto it = connections_.find(peer);
  if (it->second->local) --num_local_;
  // Closing it would not take it out of the set where a fork of this process,
  // say a worker that loads data, still has it open.
  (void)epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, it->second->framed.socket().fd(),
                  nullptr);
  connections_.erase(it);
}

bool MessageChannel::Flushed() const {
  KR_DCHECK(thread_.IsOwner());
  for (const auto& [peer, connection] : connections_) {
    if (connection->wants_write()) return false;
  }
  return true;
}

TimePoint MessageChannel::LastHeard(int peer) const {
  KR_DCHECK(thread_.IsOwner());
  auto it = heard_.find(peer);
  KR_CHECK(it != heard_.end());
  return it->second;
}

}  // namespace keras_ring
