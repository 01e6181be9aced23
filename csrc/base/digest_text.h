// DigestText: a text that others compare, of bounded length.
#ifndef KERAS_RING_BASE_DIGEST_TEXT_H_
#define KERAS_RING_BASE_DIGEST_TEXT_H_

#include <cstddef>
#include <string>

namespace keras_ring {

// `text`, or if it has more than `limit` bytes its beginning with its length
// and SHA-256: "[0, 1, 2... (108894 bytes, SHA-256 5f1c...)". Equal for equal
// texts only, and at most `limit` and a hundred bytes long.
std::string DigestText(std::string text, size_t limit);

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_DIGEST_TEXT_H_
