// The 16 bytes in front of each direction of a SendReceivePlan on the wire:
// which collective this is, and how many bytes follow.
#ifndef KERAS_RING_COMM_TRANSPORT_DATA_HEADER_H_
#define KERAS_RING_COMM_TRANSPORT_DATA_HEADER_H_

#include <cstdint>

namespace keras_ring {

inline constexpr int kDataHeaderBytes = 16;
inline constexpr uint64_t kMaxDataBytes = (uint64_t{1} << 48) - 1;

struct DataHeader {
  uint64_t tag = 0;
  uint64_t bytes = 0;  // at most kMaxDataBytes
};

// Little-endian: the tag, the bytes in 48 bits, and 16 fixed bits, by which a
// stream that has lost its position is told from another collective.
inline void EncodeDataHeader(const DataHeader& header, uint8_t* out) {
  const uint64_t second = header.bytes | uint64_t{0x524b} << 48;
  for (int i = 0; i < 8; ++i) {
    out[i] = static_cast<uint8_t>(header.tag >> (8 * i));
    out[8 + i] = static_cast<uint8_t>(second >> (8 * i));
  }
}

// Returns false if the fixed bits are wrong.
inline bool DecodeDataHeader(const uint8_t* in, DataHeader* header) {
  uint64_t tag = 0;
  uint64_t second = 0;
  for (int i = 0; i < 8; ++i) {
    tag |= static_cast<uint64_t>(in[i]) << (8 * i);
    second |= static_cast<uint64_t>(in[8 + i]) << (8 * i);
  }
  header->tag = tag;
  header->bytes = second & kMaxDataBytes;
  return second >> 48 == 0x524b;
}

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_DATA_HEADER_H_
