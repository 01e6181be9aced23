#include "csrc/comm/net/framed_connection.h"

#include <sys/uio.h>

#include <algorithm>

namespace keras_ring {
namespace {

// One read takes many small frames, and a whole record of TLS.
constexpr size_t kReadBytes = 64 << 10;
static_assert(kReadBytes >= kMaxTlsRecordBytes);

}  // namespace

size_t FramedConnection::Send(std::string_view frame) {
  if (write_broken_) return 0;
  char prefix[10];
  const size_t prefix_bytes = EncodeFrameLength(frame.size(), prefix);
  size_t sent = 0;
  if (output_.empty()) {
    const iovec parts[2] = {{prefix, prefix_bytes},
                            {const_cast<char*>(frame.data()), frame.size()}};
    const Result<size_t> result = link_.Send(parts, 2);
    if (!result.ok()) {
      write_broken_ = true;
      return 0;
    }
    sent = *result;
  }
  if (sent < prefix_bytes) output_.append(prefix + sent, prefix_bytes - sent);
  output_.append(frame.substr(sent - std::min(sent, prefix_bytes)));
  return sent;
}

size_t FramedConnection::Flush() {
  size_t sent = 0;
  while (sent < output_.size()) {
    const iovec rest = {output_.data() + sent, output_.size() - sent};
    const Result<size_t> result = link_.Send(&rest, 1);
    if (!result.ok()) {
      write_broken_ = true;
      output_.clear();
      return sent;
    }
    if (*result == 0) break;
    sent += *result;
  }
  output_.erase(0, sent);
  return sent;
}

Result<size_t> FramedConnection::Read() {
  char bytes[kReadBytes];
  const iovec room = {bytes, sizeof(bytes)};
  KR_ASSIGN_OR_RETURN(const Received received, link_.Receive(&room, 1));
  if (received.ended) {
    return UnavailableError(reader_.InFrame()
                                ? "it closed the connection in the middle "
                                  "of a message"
                                : "it closed the connection");
  }
  reader_.Append(std::string_view(bytes, received.bytes));
  return received.bytes;
}

}  // namespace keras_ring
