// DigestText: a text that others compare, of bounded length.
#ifndef KERAS_RING_BASE_DIGEST_TEXT_H_
#define KERAS_RING_BASE_DIGEST_TEXT_H_

#include <cstddef>
#include <string>

#include "csrc/base/sha256.h"

namespace keras_ring {

// `text`, or if it has more than `limit` bytes its beginning with its length
// and SHA-256: "[0, 1, 2... (108894 bytes, SHA-256 5f1c...)". Equal for equal
// texts only, and at most `limit` and a hundred bytes long.
std::string DigestText(std::string text, size_t limit);

// The first `num_bytes` of a digest, as hexadecimal digits.
std::string HexText(const Sha256Digest& digest,
                    size_t num_bytes = sizeof(Sha256Digest));

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_DIGEST_TEXT_H_
