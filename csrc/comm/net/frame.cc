#include "csrc/comm/net/frame.h"

#include <cstdint>

namespace keras_ring {
namespace {

// Above this, an empty buffer gives its memory back.
constexpr size_t kKeptBytes = 1 << 20;

}  // namespace

size_t EncodeFrameLength(size_t length, char* prefix) {
  size_t size = 0;
  while (length >= 0x80) {
    prefix[size++] = static_cast<char>((length & 0x7f) | 0x80);
    length >>= 7;
  }
  prefix[size++] = static_cast<char>(length);
  return size;
}

void FrameReader::Append(std::string_view bytes) {
  // Only the tail of an unfinished frame is ever moved.
  if (at_ > 0) {
    buffer_.erase(0, at_);
    at_ = 0;
    if (buffer_.empty() && buffer_.capacity() > kKeptBytes) {
      std::string().swap(buffer_);
    }
  }
  buffer_.append(bytes);
}

Result<bool> FrameReader::Next(std::string_view* frame) {
  std::string_view rest = std::string_view(buffer_).substr(at_);
  uint64_t length = 0;
  size_t prefix = 0;
  while (true) {
    if (prefix == rest.size()) return false;
    uint8_t byte = static_cast<uint8_t>(rest[prefix]);
    length |= static_cast<uint64_t>(byte & 0x7f) << (7 * prefix);
    ++prefix;
    if ((byte & 0x80) == 0) break;
    // Nine bytes hold 63 bits, more than any limit.
    if (prefix == 9) return InternalError("a malformed frame length");
  }
  if (length > limit_) {
    return InternalError("a frame of " + std::to_string(length) +
                         " bytes, over the limit of " + std::to_string(limit_));
  }
  if (rest.size() - prefix < length) return false;
  *frame = rest.substr(prefix, length);
  at_ += prefix + length;
  return true;
}

}  // namespace keras_ring
