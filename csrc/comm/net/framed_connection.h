// FramedConnection: a link that carries frames both ways and never blocks.
// The message channel and the store's two ends are made of it.
#ifndef KERAS_RING_COMM_NET_FRAMED_CONNECTION_H_
#define KERAS_RING_COMM_NET_FRAMED_CONNECTION_H_

#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/comm/net/frame.h"
#include "csrc/comm/net/link.h"

namespace keras_ring {

class FramedConnection {
 public:
  FramedConnection(Link link, size_t max_frame_bytes)
      : link_(std::move(link)), reader_(max_frame_bytes) {}

  // Writes the frame, or as much as the link takes, and buffers the rest.
  // Returns the number of bytes that left. A failed write is not reported here:
  // bytes that the peer sent before it closed can still be read, after which
  // Read returns the cause.
  size_t Send(std::string_view frame);
  // Writes more of the buffered bytes.
  size_t Flush();
  bool wants_write() const { return !output_.empty(); }

  // Reads once what has arrived on the link; returns the number of bytes, 0 if
  // there is nothing now. kUnavailable when the peer has closed or reset the
  // connection.
  Result<size_t> Read();
  // The next whole frame; see FrameReader::Next.
  Result<bool> Next(std::string_view* frame) { return reader_.Next(frame); }

  const Socket& socket() const { return link_.socket(); }

 private:
  Link link_;
  FrameReader reader_;
  std::string output_;
  bool write_broken_ = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_FRAMED_CONNECTION_H_
