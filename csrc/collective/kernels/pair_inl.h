// The kernels over two vectors: PairKernels. See kernels_inl.h.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_PAIR_INL_H_
#define KERAS_RING_COLLECTIVE_KERNELS_PAIR_INL_H_

#include <cstdint>
#include <cstring>

#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/kernels/lanes_inl.h"

namespace keras_ring {
namespace {

// The same number of lanes on every processor: otherwise the order of the sums,
// and with it their last bits, would depend on the processor.
inline constexpr int kPairLanes = 16;
template <typename T>
using PairVector = Vector<T, kPairLanes>;

template <typename T>
struct Products {
  PairVector<double> ab = {};
  PairVector<double> aa = {};
  PairVector<double> bb = {};

  [[gnu::always_inline]] void Add(const T* a, const T* b) {
    // Not returned by a function: the calling convention depends on the
    // processor.
    PairVector<T> from_a;
    PairVector<T> from_b;
    std::memcpy(&from_a, a, sizeof(from_a));
    std::memcpy(&from_b, b, sizeof(from_b));
    const auto x = __builtin_convertvector(from_a, PairVector<double>);
    const auto y = __builtin_convertvector(from_b, PairVector<double>);
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
};

template <typename T>
void MultiplyPair(const void* first, const void* second, int64_t count,
                  double products[3]) {
  const T* a = static_cast<const T*>(first);
  const T* b = static_cast<const T*>(second);
  Products<T> sums;
  int64_t i = 0;
  for (; i + kPairLanes <= count; i += kPairLanes) sums.Add(a + i, b + i);
  if (i < count) {
    T x[kPairLanes] = {};
    T y[kPairLanes] = {};
    std::memcpy(x, a + i, (count - i) * sizeof(T));
    std::memcpy(y, b + i, (count - i) * sizeof(T));
    sums.Add(x, y);
  }
  for (int lane = 0; lane < kPairLanes; ++lane) {
    products[0] += sums.ab[lane];
    products[1] += sums.aa[lane];
    products[2] += sums.bb[lane];
  }
}

template <typename T>
void CombinePair(void* first, const void* second, int64_t count, double of_a,
                 double of_b) {
  T* a = static_cast<T*>(first);
  const T* b = static_cast<const T*>(second);
  for (int64_t i = 0; i < count; ++i) {
    a[i] = static_cast<T>(of_a * a[i] + of_b * b[i]);
  }
}

}  // namespace
}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_PAIR_INL_H_
