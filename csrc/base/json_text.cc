#include "csrc/base/json_text.h"

#include <cstdio>

namespace keras_ring {

std::string JsonText(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[7];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      quoted += code;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace keras_ring
