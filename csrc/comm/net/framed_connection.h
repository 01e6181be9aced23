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

  // Writes the frame, or as much as the link takes and keeps the rest.
  // Returns the bytes that left. A failed write is not reported here: what the
  // peer sent before it went is still to be read, and Read ends with the
  // cause.
  size_t Send(std::string_view frame);
  // Writes more of what is kept.
  size_t Flush();
  bool wants_write() const { return !output_.empty(); }

  // Takes what has arrived off the link, once; returns how many bytes, 0 for
  // none now. kUnavailable when the peer has closed or reset the connection.
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
