#include "csrc/comm/net/local_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace keras_ring {
namespace {

// The kernel takes at most 253 in one message.
constexpr size_t kDescriptorsPerMessage = 64;

socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  KR_CHECK(!name.empty() && name.size() <= 100);
  *address = {};
  address->sun_family = AF_UNIX;
  // A leading zero byte makes the name abstract.
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                name.size());
}

Result<Socket> NewLocalSocket() {
  Socket socket(
      ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) {
    return ResourceExhaustedError("socket: " + ErrnoText(errno));
  }
  return socket;
}

std::optional<ucred> PeerOf(const Socket& socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return std::nullopt;
  }
  return peer;
}

bool IsOwnUser(const Socket& socket) {
  const std::optional<ucred> peer = PeerOf(socket);
  return peer && peer->uid == geteuid();
}

// Room for the descriptors of one message, aligned as the macros want it.
union ControlBuffer {
  cmsghdr align;
  char bytes[CMSG_SPACE(kDescriptorsPerMessage * sizeof(int))];
};

bool ShouldWait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

Result<Socket> ListenLocal(const std::string& name) {
  KR_ASSIGN_OR_RETURN(Socket socket, NewLocalSocket());
  sockaddr_un address;
  const socklen_t size = AbstractAddress(name, &address);
  if (bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(socket.fd(), SOMAXCONN) != 0) {
    return UnavailableError("cannot listen on a local socket: " +
                            ErrnoText(errno));
  }
  return socket;
}

Result<Socket> ConnectLocal(const std::string& name, Deadline deadline) {
  KR_ASSIGN_OR_RETURN(Socket socket, NewLocalSocket());
  sockaddr_un address;
  const socklen_t size = AbstractAddress(name, &address);
  while (connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), size) !=
         0) {
    // EAGAIN: the backlog is full just now.
    if ((errno != EAGAIN && errno != EINTR) || deadline.expired()) {
      return UnavailableError("cannot connect to a local socket: " +
                              ErrnoText(errno));
    }
    Pause(std::chrono::milliseconds(5), deadline);
  }
  if (!IsOwnUser(socket)) {
    return UnauthenticatedError("a local socket belongs to another user");
  }
  return socket;
}

Result<Socket> AcceptLocal(const Socket& listener, Deadline deadline) {
  while (true) {
    Socket socket(
        accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid() && IsOwnUser(socket)) return socket;
    if (!socket.valid() && !ShouldWait(errno) && errno != EINTR &&
        errno != ECONNABORTED) {
      return ResourceExhaustedError("accept: " + ErrnoText(errno));
    }
    KR_RETURN_IF_ERROR(WaitFor(listener, POLLIN, deadline));
  }
}

std::string PeerProcess(const Socket& socket) {
  const std::optional<ucred> peer = PeerOf(socket);
  return peer && peer->pid > 0 ? std::to_string(peer->pid) : "unknown";
}

Status SendDescriptors(const Socket& socket, const std::vector<int>& fds,
                       Deadline deadline) {
  for (size_t begin = 0; begin < fds.size(); begin += kDescriptorsPerMessage) {
    const size_t count = std::min(kDescriptorsPerMessage, fds.size() - begin);
    char byte = 0;
    iovec part = {&byte, 1};
    ControlBuffer control = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), &fds[begin], count * sizeof(int));
    while (sendmsg(socket.fd(), &message, MSG_NOSIGNAL) != 1) {
      if (errno == EINTR) continue;
      if (!ShouldWait(errno)) {
        return UnavailableError("sending descriptors: " + ErrnoText(errno));
      }
      KR_RETURN_IF_ERROR(WaitFor(socket, POLLOUT, deadline));
    }
  }
  return OkStatus();
}

Result<std::vector<Socket>> ReceiveDescriptors(const Socket& socket,
                                               size_t count,
                                               Deadline deadline) {
  std::vector<Socket> received;
  while (received.size() < count) {
    char byte;
    iovec part = {&byte, 1};
    ControlBuffer control = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    const ssize_t got = recvmsg(socket.fd(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && ShouldWait(errno)) {
      KR_RETURN_IF_ERROR(WaitFor(socket, POLLIN, deadline));
      continue;
    }
    if (got <= 0) {
      return UnavailableError(got == 0 ? "the local connection was closed"
                                       : ErrnoText(errno));
    }
    const size_t before = received.size();
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
        continue;
      }
      const size_t fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < fds; ++i) {
        int fd;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
        received.emplace_back(fd);
      }
    }
    if (received.size() == before || received.size() > count ||
        (message.msg_flags & MSG_CTRUNC) != 0) {
      // Cut off by a limit of this process on open files, as a rule.
      return ResourceExhaustedError(
          "descriptors were lost on their way; is the limit on open files "
          "(ulimit -n) reached?");
    }
  }
  return received;
}

}  // namespace keras_ring
