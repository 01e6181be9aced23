// ReduceOp: how an allreduce combines the ranks' values.
#ifndef KERAS_RING_BASE_REDUCE_OP_H_
#define KERAS_RING_BASE_REDUCE_OP_H_

#include <cstdint>

namespace keras_ring {

// The values travel on the wire and are attributes of TensorFlow ops: append,
// never renumber.
enum class ReduceOp : uint8_t {
  kAverage = 0,
  kSum,
  kMin,
  kMax,
  kProduct,
  kAdasum,
};
inline constexpr int kNumReduceOps = 6;
// The first of them: those that combine each element by itself.
inline constexpr int kNumElementwiseOps = 5;

// Returns the name in the Python enum: "Average".
inline const char* ReduceOpName(ReduceOp op) {
  constexpr const char* kNames[] = {"Average", "Sum",     "Min",
                                    "Max",     "Product", "Adasum"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == kNumReduceOps);
  return kNames[static_cast<int>(op)];
}

inline bool IsReduceOp(uint8_t value) { return value < kNumReduceOps; }

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_REDUCE_OP_H_
