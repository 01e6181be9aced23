#include "csrc/comm/net/socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "csrc/comm/net/addresses.h"
#include "csrc/comm/net/connect.h"

namespace keras_ring {
namespace {

// The amount that Linux segments at once by default, minus room for headers.
constexpr size_t kMaxOffloadBytes = (size_t{64} << 10) - 512;

// Unanswered probes before the connection is considered dead.
constexpr int kProbes = 3;

void SetOption(int fd, int level, int name, int value) {
  // These are improvements, not needs: a failure is not worth an error.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void SetStreamOptions(const Socket& socket) {
  SetOption(socket.fd(), IPPROTO_TCP, TCP_NODELAY, 1);
  // A cut cable shows after about a minute even on an idle connection.
  SetOption(socket.fd(), SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, 30);
  SetOption(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetOption(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Result<Socket> Listen(const std::string& host, uint16_t port) {
  KR_ASSIGN_OR_RETURN(Addresses addresses, Resolve(host, port, AI_PASSIVE));
  int error = 0;
  for (const addrinfo* it = addresses.get(); it != nullptr; it = it->ai_next) {
    Socket socket(
        ::socket(it->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) {
      error = errno;
      continue;
    }
    // Or a job could not start again while connections of the last one linger.
    SetOption(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(socket.fd(), it->ai_addr, it->ai_addrlen) == 0 &&
        listen(socket.fd(), SOMAXCONN) == 0) {
      return socket;
    }
    error = errno;
  }
  return UnavailableError("cannot listen on " + HostPort(host, port) + ": " +
                          ErrnoText(error));
}

Result<Socket> AdoptListener(int fd) {
  int listening = 0;
  socklen_t size = sizeof(listening);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0) {
    return InvalidArgumentError("descriptor " + std::to_string(fd) +
                                " is not a socket: " + ErrnoText(errno));
  }
  if (listening == 0) {
    return InvalidArgumentError("descriptor " + std::to_string(fd) +
                                " is not a listening socket");
  }
  // It was inherited, but programs that this one starts have no use for it.
  (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
  Socket socket(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!socket.valid()) {
    return ResourceExhaustedError("dup: " + ErrnoText(errno));
  }
  int flags = fcntl(socket.fd(), F_GETFL);
  if (flags < 0 || fcntl(socket.fd(), F_SETFL, flags | O_NONBLOCK) < 0) {
    return InternalError("fcntl: " + ErrnoText(errno));
  }
  return socket;
}

Result<Socket> ListenEverywhere(uint16_t port) {
  Socket socket(
      ::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // A system without IPv6.
  if (!socket.valid()) return Listen("0.0.0.0", port);
  SetOption(socket.fd(), SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  address.sin6_port = htons(port);
  if (bind(socket.fd(), reinterpret_cast<sockaddr*>(&address),
           sizeof(address)) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0) {
    if (errno == EADDRNOTAVAIL) return Listen("0.0.0.0", port);
    return UnavailableError("cannot listen on port " + std::to_string(port) +
                            ": " + ErrnoText(errno));
  }
  return socket;
}

Result<Socket> ListenInRange(const std::string& host, PortRange ports,
                             int first) {
  auto listen_on = [&](uint16_t port) {
    return host.empty() ? ListenEverywhere(port) : Listen(host, port);
  };
  if (ports.low == 0) return listen_on(0);
  const int count = ports.high - ports.low + 1;
  for (int i = 0;; ++i) {
    const int port = ports.low + (first + i) % count;
    Result<Socket> listener = listen_on(static_cast<uint16_t>(port));
    if (listener.ok()) return listener;
    if (i + 1 < count) continue;
    return listener.status().WithContext(
        "no port from " + std::to_string(ports.low) + " to " +
        std::to_string(ports.high) + " (KERAS_RING_PORT_RANGE) is free");
  }
}

Result<Socket> Connect(const std::string& host, uint16_t port,
                       Deadline deadline) {
  std::vector<Addresses> held;
  std::vector<const addrinfo*> lists;
  Status unknown;
  for (const std::string& one : SplitHosts(host)) {
    Result<Addresses> addresses = Resolve(one, port, 0);
    if (addresses.ok()) {
      lists.push_back(addresses->get());
      held.push_back(std::move(addresses).value());
    } else if (unknown.ok()) {
      unknown = addresses.status();
    }
  }
  if (lists.empty()) return unknown;
  Result<Socket> socket = ConnectToAny(lists, deadline);
  if (socket.ok()) return socket;
  return socket.status().WithContext("connecting to " + HostPort(host, port));
}

Result<Socket> Accept(const Socket& listener) {
  Socket socket(
      accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) {
    SetStreamOptions(socket);
    return socket;
  }
  switch (errno) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      return ResourceExhaustedError("accept: " + ErrnoText(errno));
    default:
      // None waits, or the one that waited is gone: the same to the caller.
      return Socket();
  }
}

Status WaitFor(const Socket& socket, short events, Deadline deadline) {
  while (true) {
    pollfd entry = {socket.fd(), events, 0};
    int ready = poll(&entry, 1, deadline.PollTimeoutMs());
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) {
      return InternalError("poll: " + ErrnoText(errno));
    }
    if (deadline.expired()) return DeadlineExceededError("timed out");
  }
}

void Pause(Duration duration, Deadline deadline) {
  Deadline until(std::min(deadline.at(), Deadline::After(duration).at()));
  (void)poll(nullptr, 0, until.PollTimeoutMs());
}

Status ReadFull(const Socket& socket, void* data, size_t bytes,
                Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    ssize_t got = recv(socket.fd(), at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= got;
    } else if (got == 0) {
      return UnavailableError("the other end closed the connection");
    } else if (WouldBlock(errno)) {
      KR_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline));
    } else if (errno != EINTR) {
      return UnavailableError(ErrnoText(errno));
    }
  }
  return OkStatus();
}

Status WriteFull(const Socket& socket, const void* data, size_t bytes,
                 Deadline deadline) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t sent = send(socket.fd(), at, bytes, MSG_NOSIGNAL);
    if (sent >= 0) {
      at += sent;
      bytes -= sent;
    } else if (WouldBlock(errno)) {
      KR_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return UnavailableError(ErrnoText(errno));
    }
  }
  return OkStatus();
}

Result<uint16_t> LocalPort(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) !=
      0) {
    return InternalError("getsockname: " + ErrnoText(errno));
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  }
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Result<std::string> LocalAddress(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) !=
      0) {
    return InternalError("getsockname: " + ErrnoText(errno));
  }
  return NameOf(reinterpret_cast<const sockaddr*>(&address), size);
}

Result<std::string> PeerAddress(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) !=
      0) {
    return UnavailableError("getpeername: " + ErrnoText(errno));
  }
  return NameOf(reinterpret_cast<const sockaddr*>(&address), size);
}

std::string PeerName(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) !=
      0) {
    return "unknown";
  }
  std::string port;
  std::string host =
      NameOf(reinterpret_cast<const sockaddr*>(&address), size, &port);
  return host + ":" + port;
}

std::string HostPort(const std::string& host, uint16_t port) {
  const bool brackets = host.find(':') != std::string::npos &&
                        host.find(',') == std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool IsDead(const Socket& socket) {
  char byte;
  ssize_t got = recv(socket.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && !WouldBlock(errno) && errno != EINTR);
}

Status SocketFailure(const Socket& socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  return error == 0 ? OkStatus() : UnavailableError(ErrnoText(error));
}

void ProbeWhenIdle(const Socket& socket, Duration limit) {
  const int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(limit).count();
  // The first after a third of the time, all of them within five sixths.
  const auto at_least_one = [](int64_t count) {
    return static_cast<int>(std::clamp<int64_t>(count, 1, 3600));
  };
  SetOption(socket.fd(), IPPROTO_TCP, TCP_KEEPIDLE, at_least_one(seconds / 3));
  SetOption(socket.fd(), IPPROTO_TCP, TCP_KEEPINTVL, at_least_one(seconds / 6));
  SetOption(socket.fd(), IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

Duration Unacknowledged(const Socket& socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      info.tcpi_unacked == 0) {
    return Duration::zero();
  }
  return std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

size_t SendQuantum(const Socket& socket) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      info.tcpi_snd_mss == 0) {
    return kMaxOffloadBytes;
  }
  const size_t packet = info.tcpi_snd_mss;
  return std::max(packet, kMaxOffloadBytes / packet * packet);
}

Status RandomBytes(void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    ssize_t got = getrandom(at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= got;
    } else if (errno != EINTR) {
      return InternalError("getrandom: " + ErrnoText(errno));
    }
  }
  return OkStatus();
}

Result<Socket> NewEventFd() {
  Socket socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!socket.valid()) {
    return ResourceExhaustedError("eventfd: " + ErrnoText(errno));
  }
  return socket;
}

void Signal(const Socket& event_fd) {
  // Fails only when the count is at its maximum: then the event stands anyway.
  (void)eventfd_write(event_fd.fd(), 1);
}

void ClearSignal(const Socket& event_fd) {
  eventfd_t count;
  (void)eventfd_read(event_fd.fd(), &count);
}

}  // namespace keras_ring
