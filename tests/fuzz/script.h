// Scripts: inputs that are steps for a target to take, with what each needs.
//
// Any bytes are a script. One that the fuzzer has cut or spliced still means
// much of what it did: numbers past the end are zero, and a text that claims
// more than there is takes the rest.
#ifndef KERAS_RING_TESTS_FUZZ_SCRIPT_H_
#define KERAS_RING_TESTS_FUZZ_SCRIPT_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace keras_ring {

class Script {
 public:
  // `bytes` must outlive the script.
  explicit Script(std::string_view bytes) : rest_(bytes) {}

  bool AtEnd() const { return rest_.empty(); }
  uint8_t Byte() {
    const std::string_view taken = Take(1);
    return taken.empty() ? 0 : static_cast<uint8_t>(taken[0]);
  }
  // Below `limit`.
  int Choice(int limit) { return Byte() % limit; }
  uint64_t Number() {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t{Byte()} << (8 * i);
    return value;
  }
  std::string_view Text() {
    const size_t low = Byte();
    return Take(low | size_t{Byte()} << 8);
  }
  std::string_view Rest() { return Take(rest_.size()); }

 private:
  std::string_view Take(size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

class ScriptWriter {
 public:
  ScriptWriter& Byte(int value) {
    bytes_.push_back(static_cast<char>(value));
    return *this;
  }
  ScriptWriter& Number(uint64_t value) {
    for (int i = 0; i < 8; ++i) Byte(static_cast<int>(value >> (8 * i) & 0xff));
    return *this;
  }
  ScriptWriter& Text(std::string_view text) {
    text = text.substr(0, 0xffff);
    Byte(static_cast<int>(text.size() & 0xff));
    Byte(static_cast<int>(text.size() >> 8));
    return Rest(text);
  }
  ScriptWriter& Rest(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_FUZZ_SCRIPT_H_
