#include "csrc/comm/net/connect.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace keras_ring {
namespace {

// A connection to a port of this host that nobody listens on may, by chance,
// get that very port as its own and so connect to itself.
bool ConnectedToItself(int fd) {
  sockaddr_storage local = {};
  sockaddr_storage peer = {};
  socklen_t local_size = sizeof(local);
  socklen_t peer_size = sizeof(peer);
  return getsockname(fd, reinterpret_cast<sockaddr*>(&local), &local_size) ==
             0 &&
         getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         local_size == peer_size && std::memcmp(&local, &peer, peer_size) == 0;
}

// The tries at the addresses of one host.
class Tries {
 public:
  // Begins one.
  void Begin(const addrinfo& address) {
    Socket socket(::socket(address.ai_family,
                           SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) {
      Fail(ResourceExhaustedError("socket: " + ErrnoText(errno)));
      return;
    }
    SetStreamOptions(socket);
    if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) {
      End(std::move(socket), 0);
    } else if (errno == EINPROGRESS || errno == EINTR) {
      waiting_.push_back(std::move(socket));
    } else {
      End(std::move(socket), errno);
    }
  }

  // Waits until one of them ends, or for `milliseconds`.
  Status Wait(int milliseconds) {
    std::vector<pollfd> entries;
    for (const Socket& socket : waiting_) {
      entries.push_back({socket.fd(), POLLOUT, 0});
    }
    if (poll(entries.data(), entries.size(), milliseconds) < 0) {
      if (errno == EINTR) return OkStatus();
      return InternalError("poll: " + ErrnoText(errno));
    }
    std::vector<Socket> all = std::move(waiting_);
    waiting_.clear();
    for (size_t i = 0; i < all.size(); ++i) {
      if (entries[i].revents == 0 || connected_) {
        waiting_.push_back(std::move(all[i]));
        continue;
      }
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(all[i].fd(), SOL_SOCKET, SO_ERROR, &error, &size);
      End(std::move(all[i]), error);
    }
    return OkStatus();
  }

  std::optional<Socket>& connected() { return connected_; }
  size_t num_waiting() const { return waiting_.size(); }
  // Why the first one failed.
  const Status& failure() const { return failure_; }

 private:
  void End(Socket socket, int error) {
    if (error == 0 && ConnectedToItself(socket.fd())) error = ECONNREFUSED;
    if (error != 0) {
      Fail(UnavailableError(ErrnoText(error)));
    } else {
      connected_ = std::move(socket);
    }
  }
  void Fail(Status status) {
    if (failure_.ok()) failure_ = std::move(status);
  }

  std::vector<Socket> waiting_;
  std::optional<Socket> connected_;
  Status failure_;
};

}  // namespace

Result<Socket> ConnectToAny(const std::vector<const addrinfo*>& lists,
                            Deadline deadline, Duration stagger) {
  std::vector<const addrinfo*> addresses;
  for (const addrinfo* it : lists) {
    for (; it != nullptr; it = it->ai_next) addresses.push_back(it);
  }
  Tries tries;
  auto next = addresses.begin();
  Deadline turn = Deadline::After(Duration::zero());  // of the next one
  while (true) {
    const bool more = next != addresses.end();
    if (more && (tries.num_waiting() == 0 || turn.expired())) {
      tries.Begin(**next++);
      turn = Deadline::After(stagger);
    }
    if (tries.connected()) return *std::move(tries.connected());
    if (tries.num_waiting() == 0) {
      if (next == addresses.end()) return tries.failure();
      continue;
    }
    const Deadline until = next == addresses.end()
                               ? deadline
                               : Deadline(std::min(deadline.at(), turn.at()));
    KR_RETURN_IF_ERROR(tries.Wait(until.PollTimeoutMs()));
    if (tries.connected()) return *std::move(tries.connected());
    if (deadline.expired() && tries.num_waiting() > 0) {
      return DeadlineExceededError("timed out");
    }
  }
}

}  // namespace keras_ring
