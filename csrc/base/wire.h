// Bounds-checked reading and writing of the bytes that ranks exchange.
//
// Little-endian. Integers that are usually small are LEB128 varints, because a
// steady-state training step should cost bytes, not kilobytes.
#ifndef KERAS_RING_BASE_WIRE_H_
#define KERAS_RING_BASE_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace keras_ring {

class WireWriter {
 public:
  void Byte(uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void Fixed32(uint32_t value);
  void Fixed64(uint64_t value);
  void Double(double value);
  void Varint(uint64_t value);
  // Zig-zag, so that small negative numbers stay short.
  void SignedVarint(int64_t value);
  // Length, then the bytes.
  void Text(std::string_view value);
  void Raw(std::string_view value) { bytes_.append(value); }

  const std::string& bytes() const { return bytes_; }
  std::string Take() { return std::exchange(bytes_, std::string()); }

 private:
  std::string bytes_;
};

// Reads what WireWriter wrote. The first read past the end, overlong varint or
// excessive length makes the reader fail for good: every later read returns
// zero or an empty text, so a caller may read a whole message and then ask
// ok() once.
class WireReader {
 public:
  // `bytes` must outlive the reader.
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  uint8_t Byte();
  uint32_t Fixed32();
  uint64_t Fixed64();
  double Double();
  uint64_t Varint();
  int64_t SignedVarint();
  // At most `limit` bytes. The view is into the reader's own bytes.
  std::string_view Text(size_t limit);
  std::string_view Raw(size_t size);

  // A count of elements that each take at least `element_bytes` of what is
  // left; more than that fails, so a forged count cannot make us allocate.
  size_t Count(size_t element_bytes);

  bool ok() const { return ok_; }
  bool AtEnd() const { return rest_.empty(); }
  // Read without a failure and to the last byte.
  bool Finished() const { return ok_ && rest_.empty(); }
  void Fail() {
    ok_ = false;
    rest_ = {};
  }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_WIRE_H_
