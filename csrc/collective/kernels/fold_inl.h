// Fold: the loop that all kernels are made of. See kernels_inl.h.
#ifndef KERAS_RING_COLLECTIVE_KERNELS_FOLD_INL_H_
#define KERAS_RING_COLLECTIVE_KERNELS_FOLD_INL_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/kernels/lanes_inl.h"

namespace keras_ring {
namespace {

// The factors in the wide dtype, and which of them have an effect. A product
// with 1 is not a no-op: it makes a NaN quiet.
template <typename Wide>
struct Factors {
  // Integers are not scaled.
  using Factor = std::conditional_t<std::is_integral_v<Wide>, double, Wide>;

  explicit Factors(const FoldArgs& args)
      : prescale(static_cast<Factor>(args.prescale)),
        divisor(static_cast<Factor>(args.finish.divisor)),
        inverse(1 / divisor),
        postscale(static_cast<Factor>(args.finish.postscale)),
        prescales(args.prescale != 1.0),
        divides(args.finish.divisor != 1),
        inverts((args.finish.divisor & (args.finish.divisor - 1)) == 0),
        postscales(args.finish.postscale != 1.0) {}

  const Factor prescale;
  const Factor divisor;
  const Factor inverse;
  const Factor postscale;
  const bool prescales;
  const bool divides;
  const bool inverts;
  const bool postscales;
};

// A few vectors at a time: one addition need not wait for another.
inline constexpr int kVectorsPerTile = 4;

// One tile through all steps, in registers, so that every array is gone over
// once. `source(s)` is where the tile of the s-th source lies. Everything is
// read before `output` is written, which may be one of them. The results are
// rounded to `Rounded`, and so `copy` gets them.
template <typename Isa, typename Wide, typename Op, typename Rounded,
          typename To, typename Source>
[[gnu::always_inline]] inline void FoldTile(const Factors<Wide>& factors,
                                            const FoldArgs& args, Source source,
                                            To* output, Rounded* copy) {
  constexpr int kLanes = kLanesOf<Isa, Wide>;
  Vector<Wide, kLanes> tile[kVectorsPerTile];
  auto load = [&](const auto* from) {
    auto lanes = Load<Isa, Wide>(from);
    if constexpr (!std::is_integral_v<Wide>) {
      if (factors.prescales) lanes *= factors.prescale;
    }
    return lanes;
  };
  const auto* first = source(0);
  for (int v = 0; v < kVectorsPerTile; ++v) tile[v] = load(first + v * kLanes);
  for (int s = 1; s < args.num_sources; ++s) {
    const auto* next = source(s);
    for (int v = 0; v < kVectorsPerTile; ++v) {
      tile[v] = Op::template Apply<Wide>(tile[v], load(next + v * kLanes));
    }
  }
  for (int v = 0; v < kVectorsPerTile; ++v) {
    // A division, not a multiplication by 1/divisor: a sum that is exact gives
    // an exact mean then, whatever the divisor. (n times the same value in
    // float32 comes back as it was while the value has log2(n) mantissa bits
    // to spare. Packed 16-bit floats have, always.) Of a power of two the
    // inverse is exact, so the product is the quotient, and faster.
    if constexpr (!std::is_integral_v<Wide>) {
      if (factors.divides && factors.inverts) {
        tile[v] *= factors.inverse;
      } else if (factors.divides) {
        tile[v] /= factors.divisor;
      }
      if (factors.postscales) tile[v] *= factors.postscale;
    } else if (factors.divides) {
      for (int lane = 0; lane < kLanes; ++lane) {
        // C++ rounds towards zero; the remainder has value's sign.
        const int64_t value = tile[v][lane];
        const int64_t divisor = args.finish.divisor;
        tile[v][lane] =
            static_cast<Wide>(value / divisor - (value % divisor < 0 ? 1 : 0));
      }
    }
    if constexpr (std::is_same_v<Rounded, To>) {
      Store<Isa, Wide>(output + v * kLanes, tile[v]);
      if (copy != nullptr) Store<Isa, Wide>(copy + v * kLanes, tile[v]);
    } else {
      Rounded rounded[kLanes];
      Store<Isa, Wide>(rounded, tile[v]);
      if (copy != nullptr) {
        std::memcpy(copy + v * kLanes, rounded, sizeof(rounded));
      }
      Store<Isa, Wide>(output + v * kLanes, Load<Isa, Wide>(rounded));
    }
  }
}

template <typename Isa, typename To, size_t kSize>
[[gnu::always_inline]] inline void StreamTile(To* output,
                                              const To (&tile)[kSize]) {
  char* to = reinterpret_cast<char*>(output);
  const char* from = reinterpret_cast<const char*>(tile);
  for (size_t at = 0; at < sizeof(tile); at += kLine) {
    Isa::StreamLine(to + at, from + at);
  }
}

// Sources of From, summed as Wide and rounded to Rounded, to an output of To.
template <typename Isa, typename From, typename Wide, typename To, typename Op,
          typename Rounded = To>
void Fold(const FoldArgs& args) {
  constexpr int64_t kTile = kLanesOf<Isa, Wide> * kVectorsPerTile;
  const Factors<Wide> factors(args);
  To* output = static_cast<To*>(args.output);
  Rounded* copy = static_cast<Rounded*>(args.copy);
  auto source = [&args](int s) {
    return static_cast<const From*>(args.sources[s]);
  };
  int64_t i = 0;
  auto fold_to = [&](To* tile) {
    FoldTile<Isa, Wide, Op, Rounded>(
        factors, args, [&](int s) { return source(s) + i; }, tile,
        copy == nullptr ? nullptr : copy + i);
  };
  if constexpr (kTile * sizeof(To) % kLine == 0) {
    if (args.streams && reinterpret_cast<uintptr_t>(output) % kLine == 0) {
      alignas(kLine) To tile[kTile];
      for (; i + kTile <= args.count; i += kTile) {
        fold_to(tile);
        StreamTile<Isa>(output + i, tile);
      }
      Isa::EndStream();
    }
  }
  for (; i + kTile <= args.count; i += kTile) fold_to(output + i);
  const int64_t left = args.count - i;
  if (left == 0) return;
  From from[kTile] = {};
  To to[kTile];
  Rounded rounded[kTile];
  auto padded = [&](int s) {
    std::memcpy(from, source(s) + i, left * sizeof(From));
    return &from[0];
  };
  FoldTile<Isa, Wide, Op, Rounded>(factors, args, padded, to,
                                   copy == nullptr ? nullptr : rounded);
  std::memcpy(output + i, to, left * sizeof(To));
  if (copy != nullptr) std::memcpy(copy + i, rounded, left * sizeof(Rounded));
}

}  // namespace
}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_FOLD_INL_H_
