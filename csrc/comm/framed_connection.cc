#include "csrc/comm/framed_connection.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>

namespace keras_ring {
namespace {

// One read takes many small frames.
constexpr size_t kReadBytes = 64 << 10;

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

size_t FramedConnection::Send(std::string_view frame) {
  if (write_broken_) return 0;
  char prefix[10];
  const size_t prefix_bytes = EncodeFrameLength(frame.size(), prefix);
  size_t sent = 0;
  if (output_.empty()) {
    iovec parts[2] = {{prefix, prefix_bytes},
                      {const_cast<char*>(frame.data()), frame.size()}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    ssize_t result;
    do {
      result = sendmsg(socket_.fd(), &message, MSG_NOSIGNAL);
    } while (result < 0 && errno == EINTR);
    if (result < 0 && !WouldBlock(errno)) {
      write_broken_ = true;
      return 0;
    }
    sent = std::max<ssize_t>(result, 0);
  }
  if (sent < prefix_bytes) output_.append(prefix + sent, prefix_bytes - sent);
  output_.append(frame.substr(sent - std::min(sent, prefix_bytes)));
  return sent;
}

size_t FramedConnection::Flush() {
  size_t sent = 0;
  while (sent < output_.size()) {
    ssize_t result = send(socket_.fd(), output_.data() + sent,
                          output_.size() - sent, MSG_NOSIGNAL);
    if (result >= 0) {
      sent += result;
    } else if (WouldBlock(errno)) {
      break;
    } else if (errno != EINTR) {
      write_broken_ = true;
      output_.clear();
      return sent;
    }
  }
  output_.erase(0, sent);
  return sent;
}

Result<size_t> FramedConnection::Read() {
  char bytes[kReadBytes];
  while (true) {
    ssize_t got = recv(socket_.fd(), bytes, sizeof(bytes), 0);
    if (got > 0) {
      reader_.Append(std::string_view(bytes, got));
      return static_cast<size_t>(got);
    }
    if (got == 0) {
      return UnavailableError(reader_.InFrame()
                                  ? "it closed the connection in the middle "
                                    "of a message"
                                  : "it closed the connection");
    }
    if (WouldBlock(errno)) return size_t{0};
    if (errno != EINTR) return UnavailableError(ErrnoText(errno));
  }
}

}  // namespace keras_ring
