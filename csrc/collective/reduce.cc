#include "csrc/collective/reduce.h"

#include <type_traits>

namespace keras_ring {
namespace {

// The type in which T's sums and products are taken: unsigned, since signed
// overflow is undefined, and at least 32 bits wide, since narrower ones are
// promoted to (signed) int first.
template <typename T, bool = std::is_integral_v<T>>
struct Arithmetic {
  using Type = T;
};
template <typename T>
struct Arithmetic<T, true> {
  using Type = std::conditional_t<(sizeof(T) < sizeof(uint32_t)), uint32_t,
                                  std::make_unsigned_t<T>>;
};

struct Sum {
  template <typename T>
  static T Apply(T a, T b) {
    using A = typename Arithmetic<T>::Type;
    return static_cast<T>(static_cast<A>(a) + static_cast<A>(b));
  }
};

struct Product {
  template <typename T>
  static T Apply(T a, T b) {
    using A = typename Arithmetic<T>::Type;
    return static_cast<T>(static_cast<A>(a) * static_cast<A>(b));
  }
};

// `a != a` is true of a NaN only. With `|` instead of `||` the loop has no
// branch and vectorises. A NaN in b is taken because it compares false.
struct Min {
  template <typename T>
  static T Apply(T a, T b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

struct Max {
  template <typename T>
  static T Apply(T a, T b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};

template <typename T, typename Op>
void Reduce(void* accumulator, const void* value, int64_t count) {
  T* __restrict__ a = static_cast<T*>(accumulator);
  const T* __restrict__ b = static_cast<const T*>(value);
  for (int64_t i = 0; i < count; ++i) a[i] = Op::Apply(a[i], b[i]);
}

struct Row {
  DType dtype;
  ReduceKernel kernels[kNumReduceOps];
};

// In the order of ReduceOp.
template <typename T>
constexpr Row MakeRow(DType dtype) {
  return {dtype,
          {Reduce<T, Sum>, Reduce<T, Sum>, Reduce<T, Min>, Reduce<T, Max>,
           Reduce<T, Product>}};
}
static_assert(static_cast<int>(ReduceOp::kAverage) == 0 &&
              static_cast<int>(ReduceOp::kSum) == 1 &&
              static_cast<int>(ReduceOp::kMin) == 2 &&
              static_cast<int>(ReduceOp::kMax) == 3 &&
              static_cast<int>(ReduceOp::kProduct) == 4);

constexpr Row kRows[] = {
    MakeRow<uint8_t>(DType::kUint8),   MakeRow<int8_t>(DType::kInt8),
    MakeRow<uint16_t>(DType::kUint16), MakeRow<int16_t>(DType::kInt16),
    MakeRow<int32_t>(DType::kInt32),   MakeRow<int64_t>(DType::kInt64),
    MakeRow<float>(DType::kFloat32),   MakeRow<double>(DType::kFloat64),
};

}  // namespace

ReduceKernel FindReduceKernel(DType dtype, ReduceOp op) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return row.kernels[static_cast<int>(op)];
  }
  return nullptr;
}

}  // namespace keras_ring
