#include "csrc/base/wire.h"

#include <cstring>

namespace keras_ring {
namespace {

// Shifts rather than memcpy: the wire is little-endian on any host.
template <typename T>
void AppendFixed(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
}

template <typename T>
T ParseFixed(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= static_cast<T>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

}  // namespace

void WireWriter::Fixed32(uint32_t value) { AppendFixed(bytes_, value); }

void WireWriter::Fixed64(uint64_t value) { AppendFixed(bytes_, value); }

void WireWriter::Double(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  Fixed64(bits);
}

void WireWriter::Varint(uint64_t value) {
  while (value >= 0x80) {
    Byte(static_cast<uint8_t>(value) | 0x80);
    value >>= 7;
  }
  Byte(static_cast<uint8_t>(value));
}

void WireWriter::SignedVarint(int64_t value) {
  Varint((static_cast<uint64_t>(value) << 1) ^
         static_cast<uint64_t>(value >> 63));
}

void WireWriter::Text(std::string_view value) {
  Varint(value.size());
  Raw(value);
}

std::string_view WireReader::Raw(size_t size) {
  if (size > rest_.size()) {
    Fail();
    return {};
  }
  std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

uint8_t WireReader::Byte() { return ParseFixed<uint8_t>(Raw(1)); }

uint32_t WireReader::Fixed32() { return ParseFixed<uint32_t>(Raw(4)); }

uint64_t WireReader::Fixed64() { return ParseFixed<uint64_t>(Raw(8)); }

double WireReader::Double() {
  uint64_t bits = Fixed64();
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint64_t WireReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    uint8_t byte = Byte();
    // The tenth byte holds the one bit that is left of 64.
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return ok_ ? value : 0;
  }
  Fail();
  return 0;
}

int64_t WireReader::SignedVarint() {
  uint64_t value = Varint();
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

std::string_view WireReader::Text(size_t limit) {
  uint64_t size = Varint();
  if (size > limit) {
    Fail();
    return {};
  }
  return Raw(size);
}

size_t WireReader::Count(size_t element_bytes) {
  uint64_t count = Varint();
  if (count > rest_.size() / element_bytes) {
    Fail();
    return 0;
  }
  return count;
}

}  // namespace keras_ring
