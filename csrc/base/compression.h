// Compression: what floats are rounded to on their way between ranks.
#ifndef KERAS_RING_BASE_COMPRESSION_H_
#define KERAS_RING_BASE_COMPRESSION_H_

#include <cstdint>

#include "csrc/base/dtype.h"

namespace keras_ring {

// The values travel on the wire and are attributes of TensorFlow ops: append,
// never renumber.
enum class Compression : uint8_t {
  kNone = 0,
  kFloat16,
  kBfloat16,
};
inline constexpr int kNumCompressions = 3;

// Returns the name in Python: "fp16".
inline const char* CompressionName(Compression compression) {
  constexpr const char* kNames[] = {"none", "fp16", "bf16"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kNumCompressions);
  return kNames[static_cast<int>(compression)];
}

inline bool IsCompression(uint8_t value) { return value < kNumCompressions; }

// The dtype that tensors of `dtype` travel as: wider floats in the format of
// `compression`, all others as they are.
inline DType WireDType(DType dtype, Compression compression) {
  if (compression == Compression::kNone || !IsFloating(dtype) ||
      DTypeSize(dtype) <= 2) {
    return dtype;
  }
  return compression == Compression::kFloat16 ? DType::kFloat16
                                              : DType::kBfloat16;
}

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_COMPRESSION_H_
