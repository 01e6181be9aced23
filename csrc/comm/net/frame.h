// FrameReader: cuts a byte stream into length-prefixed messages.
#ifndef KERAS_RING_COMM_NET_FRAME_H_
#define KERAS_RING_COMM_NET_FRAME_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "csrc/base/status.h"

namespace keras_ring {

// A frame is a varint length and that many bytes. What a peer claims never
// makes us allocate: the buffer grows with the bytes that have arrived.
class FrameReader {
 public:
  explicit FrameReader(size_t max_frame_bytes) : limit_(max_frame_bytes) {}

  // Takes bytes off the stream. Ends the life of the views given out.
  void Append(std::string_view bytes);

  // Cuts the next whole frame into `frame`; false when none is there yet. The
  // view lives until the next Append. An over-long or malformed length is an
  // error, and the stream is of no use after it.
  Result<bool> Next(std::string_view* frame);

  // Whether a frame has begun and not ended.
  bool InFrame() const { return at_ < buffer_.size(); }

 private:
  const size_t limit_;
  std::string buffer_;
  size_t at_ = 0;  // start of what is not cut yet
};

// The length prefix of a frame. `prefix` takes at most 10 bytes; returns how
// many.
size_t EncodeFrameLength(size_t length, char* prefix);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_FRAME_H_
