// FrameReader: cuts a byte stream into length-prefixed messages.
#ifndef KERAS_RING_COMM_NET_FRAME_H_
#define KERAS_RING_COMM_NET_FRAME_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace keras_ring {

// A frame is a varint length and that many bytes. A length that a peer claims
// never causes an allocation: the buffer grows with the bytes that have
// arrived.
class FrameReader {
 public:
  explicit FrameReader(size_t max_frame_bytes) : limit_(max_frame_bytes) {}

  // Appends bytes of the stream. Invalidates the views returned before.
  void Append(std::string_view bytes);

  // Cuts the next whole frame into `frame`; false if there is none yet. The
  // view is valid until the next Append. An over-long or malformed length is an
  // error, after which the stream is unusable.
  Result<bool> Next(std::string_view* frame);

  // Returns whether a frame has begun but not ended.
  bool InFrame() const { return at_ < buffer_.size(); }

 private:
  const size_t limit_;
  std::string buffer_;
  size_t at_ = 0;  // start of what is not cut yet
};

// Encodes the length prefix of a frame. `prefix` needs room for 10 bytes;
// returns how many were written.
size_t EncodeFrameLength(size_t length, char* prefix);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_FRAME_H_
