#include "csrc/base/digest_text.h"

#include <cstdio>

#include "csrc/base/sha256.h"

namespace keras_ring {

std::string DigestText(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  std::string digest;
  for (uint8_t byte : Sha256Of(text)) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", byte);
    digest += hex;
  }
  const std::string length = std::to_string(text.size());
  text.resize(limit);
  return text + "... (" + length + " bytes, SHA-256 " + digest + ")";
}

}  // namespace keras_ring
