#include "csrc/base/digest_text.h"

#include <cstdio>

namespace keras_ring {

std::string DigestText(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  const std::string digest = HexText(Sha256Of(text));
  const std::string length = std::to_string(text.size());
  text.resize(limit);
  return text + "... (" + length + " bytes, SHA-256 " + digest + ")";
}

std::string HexText(const Sha256Digest& digest, size_t num_bytes) {
  std::string text;
  for (size_t i = 0; i < num_bytes; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", digest[i]);
    text += hex;
  }
  return text;
}

}  // namespace keras_ring
