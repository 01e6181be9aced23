// Socket: an owned file descriptor, and the few calls on stream sockets that
// the rest of comm is made of. Every socket is non-blocking and closed on exec;
// whatever waits takes a Deadline.
#ifndef KERAS_RING_COMM_NET_SOCKET_H_
#define KERAS_RING_COMM_NET_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"

namespace keras_ring {

// Owns one descriptor (also used for eventfd and epoll).
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { Close(); }

  int fd() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// Port 0 lets the system choose; LocalPort tells which.
Result<Socket> Listen(const std::string& host, uint16_t port);

// Ports from `low` to `high`; any port if `low` is 0.
struct PortRange {
  uint16_t low = 0;
  uint16_t high = 0;
};

// Listens on one of these ports, and on every address if `host` is empty. The
// search begins with the `first`-th port, so that the ranks of a host do not
// all try the same ones. kUnavailable if none is free.
Result<Socket> ListenInRange(const std::string& host, PortRange ports,
                             int first);

// Listens on every address of this host.
Result<Socket> ListenEverywhere(uint16_t port);

// Duplicates an inherited listening socket. The original stays open, so that a
// later init can adopt it again, and connections that arrive meanwhile wait in
// its backlog.
Result<Socket> AdoptListener(int fd);

// kUnavailable if nothing listens there, or the host is unknown (worth trying
// again while a job starts). `host` may be several, separated by commas; for
// several addresses, see ConnectToAny.
Result<Socket> Connect(const std::string& host, uint16_t port,
                       Deadline deadline);

// Takes a connection off a listener's backlog. Returns an invalid socket if
// none waits.
Result<Socket> Accept(const Socket& listener);

Status ReadFull(const Socket& socket, void* data, size_t bytes,
                Deadline deadline);
Status WriteFull(const Socket& socket, const void* data, size_t bytes,
                 Deadline deadline);

// Waits for `events` (as poll(2)). kDeadlineExceeded when they do not come.
Status WaitFor(const Socket& socket, short events, Deadline deadline);

// A pause before trying something again; ends at `deadline` at the latest.
void Pause(Duration duration, Deadline deadline);

// Sets the options of every connection. They improve it: a failure is no error.
void SetStreamOptions(const Socket& socket);

Result<uint16_t> LocalPort(const Socket& socket);
// The numeric address of this end.
Result<std::string> LocalAddress(const Socket& socket);
// The numeric address of the other end.
Result<std::string> PeerAddress(const Socket& socket);
// "10.0.0.7:4711", or "unknown": for messages.
std::string PeerName(const Socket& socket);
// "host:port", with brackets around an IPv6 address.
std::string HostPort(const std::string& host, uint16_t port);

// Returns whether the other end has closed the connection and left nothing to
// read.
bool IsDead(const Socket& socket);

// Returns the pending error of a connection, if any.
Status SocketFailure(const Socket& socket);

// Makes the system probe an idle peer, so that this end fails within `limit`,
// but not within less than a few seconds, once the peer stops answering.
void ProbeWhenIdle(const Socket& socket, Duration limit);

// Returns for how long the other end's system has acknowledged nothing, if
// something is unacknowledged; else zero. Also zero where the system cannot
// tell.
Duration Unacknowledged(const Socket& socket);

// Returns how many bytes to pass to one send of a long stream: as many whole
// packets as the system passes to the device in one go. With less, the system
// works more; with more, the rest of a packet travels by itself, and data that
// was read to be sent has left the caches before the next is received.
size_t SendQuantum(const Socket& socket);

Status RandomBytes(void* data, size_t bytes);

// A non-blocking eventfd, for waking a thread that sleeps in poll.
Result<Socket> NewEventFd();
void Signal(const Socket& event_fd);
void ClearSignal(const Socket& event_fd);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_SOCKET_H_
