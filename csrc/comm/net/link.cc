#include "csrc/comm/net/link.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

namespace keras_ring {
namespace {

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

Result<size_t> Link::Send(const iovec* parts, size_t num_parts) const {
  if (session_ != nullptr) return session_->Send(parts, num_parts);
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = num_parts;
  while (true) {
    const ssize_t sent = sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (WouldBlock(errno)) return size_t{0};
    if (errno != EINTR) return UnavailableError(ErrnoText(errno));
  }
}

Result<Received> Link::Receive(const iovec* parts, size_t num_parts) const {
  if (session_ != nullptr) return session_->Receive(parts, num_parts);
  while (true) {
    const ssize_t got = readv(socket_.fd(), parts, static_cast<int>(num_parts));
    if (got >= 0) return Received{static_cast<size_t>(got), got == 0};
    if (WouldBlock(errno)) return Received();
    if (errno != EINTR) return UnavailableError(ErrnoText(errno));
  }
}

Status ReadFull(const Link& link, void* data, size_t bytes, Deadline deadline) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const iovec room = {at, bytes};
    KR_ASSIGN_OR_RETURN(const Received received, link.Receive(&room, 1));
    if (received.ended) {
      return UnavailableError("the other end closed the connection");
    }
    if (received.bytes == 0) {
      KR_RETURN_IF_ERROR(WaitFor(link.socket(), POLLIN, deadline));
    }
    at += received.bytes;
    bytes -= received.bytes;
  }
  return OkStatus();
}

Status WriteFull(const Link& link, const void* data, size_t bytes,
                 Deadline deadline) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const iovec rest = {const_cast<char*>(at), bytes};
    KR_ASSIGN_OR_RETURN(const size_t sent, link.Send(&rest, 1));
    if (sent == 0)
      KR_RETURN_IF_ERROR(WaitFor(link.socket(), POLLOUT, deadline));
    at += sent;
    bytes -= sent;
  }
  return OkStatus();
}

}  // namespace keras_ring
