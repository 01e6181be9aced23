// MakeKernelTable<Isa>: the kernels, compiled for one instruction set.
//
// Only kernels_baseline.cc, kernels_avx2.cc and kernels_avx512.cc include the
// *_inl.h, each compiled with flags of its own. So everything in them is in
// unnamed namespaces, and they call no inline function of other headers that
// is not always_inline: the linker keeps one copy of such a function, perhaps
// one with instructions that the processor does not have. The test
// kernel_symbols looks at the object files.
//
// The kernels are written in vectors of the compiler's. An Isa has
//
//   kVectorBytes    the size of its vectors
//   Widen, Narrow   16-bit floats to floats and back, a vector of them
//   StreamLine      copies to a whole line of the caches, past them if it can
//   EndStream       makes such stores visible before all that follow, as who
//                   reads them will expect
//   StreamCopy      as in kernels.h
#ifndef KERAS_RING_COLLECTIVE_KERNELS_KERNELS_INL_H_
#define KERAS_RING_COLLECTIVE_KERNELS_KERNELS_INL_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "csrc/base/float16.h"
#include "csrc/collective/kernels/fold_inl.h"
#include "csrc/collective/kernels/kernel_table.h"
#include "csrc/collective/kernels/pair_inl.h"
#include "csrc/collective/kernels/reduce_inl.h"

namespace keras_ring {
namespace {

// Every other kernel is a fold, too, so that a step has one definition.

FoldArgs OneSource(const void* const* source, int64_t count, void* output) {
  FoldArgs args;
  args.sources = source;
  args.num_sources = 1;
  args.count = count;
  args.output = output;
  return args;
}

template <typename T>
void Copy(void* to, const void* from, int64_t count) {
  // memcpy of no bytes must still not be given null pointers.
  if (to != from && count > 0) std::memcpy(to, from, count * sizeof(T));
}

template <typename Isa, typename Value, typename Wide>
void Pack(void* wide, const void* values, int64_t count, double prescale) {
  if constexpr (std::is_same_v<Value, Wide>) {
    if (std::is_integral_v<Wide> || prescale == 1.0) {
      Copy<Wide>(wide, values, count);
      return;
    }
  }
  FoldArgs args = OneSource(&values, count, wide);
  args.prescale = prescale;
  Fold<Isa, Value, Wide, Wide, Sum>(args);
}

template <typename Isa, typename Value, typename Wide>
void Unpack(void* values, const void* wide, int64_t count) {
  if constexpr (std::is_same_v<Value, Wide>) {
    Copy<Wide>(values, wide, count);
  } else {
    Fold<Isa, Wide, Wide, Value, Sum>(OneSource(&wide, count, values));
  }
}

template <typename Isa, typename Wide>
void FinishAll(void* wide, int64_t count, const Finish& finish) {
  if (finish.divisor == 1 && finish.postscale == 1.0) return;
  const void* source = wide;
  FoldArgs args = OneSource(&source, count, wide);
  args.finish = finish;
  Fold<Isa, Wide, Wide, Wide, Sum>(args);
}

template <typename Isa, typename Wide, typename Op>
void Reduce(void* accumulator, const void* value, int64_t count) {
  const void* sources[] = {accumulator, value};
  FoldArgs args = OneSource(sources, count, accumulator);
  args.num_sources = 2;
  Fold<Isa, Wide, Wide, Wide, Op>(args);
}

// --- The table ---

template <typename Isa, typename Value, typename Wide>
constexpr AccumulatorFormat MakeFormat(DType wide) {
  AccumulatorFormat format;
  format.dtype = wide;
  format.element_size = sizeof(Wide);
  format.value_size = sizeof(Value);
  format.converts = !std::is_same_v<Value, Wide>;
  format.pack = Pack<Isa, Value, Wide>;
  format.unpack = Unpack<Isa, Value, Wide>;
  format.finish = FinishAll<Isa, Wide>;
  return format;
}

// In the order of ReduceOp.
static_assert(static_cast<int>(ReduceOp::kAverage) == 0 &&
              static_cast<int>(ReduceOp::kSum) == 1 &&
              static_cast<int>(ReduceOp::kMin) == 2 &&
              static_cast<int>(ReduceOp::kMax) == 3 &&
              static_cast<int>(ReduceOp::kProduct) == 4);

// A dtype that is summed as `Usual`, and for an average as `Average`.
template <typename Isa, typename Value, typename Usual, typename Average>
constexpr KernelTable::Row MakeRow(DType usual, DType average) {
  return {
      MakeFormat<Isa, Value, Usual>(usual),
      MakeFormat<Isa, Value, Average>(average),
      {},
      {Fold<Isa, Value, Average, Value, Sum>,
       Fold<Isa, Value, Usual, Value, Sum>, Fold<Isa, Value, Usual, Value, Min>,
       Fold<Isa, Value, Usual, Value, Max>,
       Fold<Isa, Value, Usual, Value, Product>},
      {}};
}

// A dtype that is summed as it is, but perhaps not for an average.
template <typename Isa, typename Value, typename Average>
constexpr KernelTable::Row MakeOwnRow(DType dtype, DType average) {
  KernelTable::Row row = MakeRow<Isa, Value, Value, Average>(dtype, average);
  row.reduce[0] = row.reduce[1] = Reduce<Isa, Value, Sum>;
  row.reduce[2] = Reduce<Isa, Value, Min>;
  row.reduce[3] = Reduce<Isa, Value, Max>;
  row.reduce[4] = Reduce<Isa, Value, Product>;
  if constexpr (std::is_floating_point_v<Value>) {
    row.pair = {MultiplyPair<Value>, CombinePair<Value>};
  }
  return row;
}

// Packs values that travel as the narrower `Wire`.
template <typename Isa, typename Value, typename Wire>
void PackNarrow(void* wire, const void* values, int64_t count,
                double prescale) {
  FoldArgs args = OneSource(&values, count, wire);
  args.prescale = prescale;
  Fold<Isa, Value, Value, Wire, Sum>(args);
}

template <typename Isa, typename Value, typename Wire>
void UnpackNarrow(void* values, const void* wire, int64_t count) {
  Fold<Isa, Wire, float, Value, Sum>(OneSource(&wire, count, values));
}

template <typename Isa, typename Value, typename Wire>
constexpr Codec MakeCodec() {
  return {sizeof(Wire),
          PackNarrow<Isa, Value, Wire>,
          UnpackNarrow<Isa, Value, Wire>,
          {Fold<Isa, Wire, float, Value, Sum, Wire>,
           Fold<Isa, Wire, float, Value, Sum, Wire>,
           Fold<Isa, Wire, float, Value, Min, Wire>,
           Fold<Isa, Wire, float, Value, Max, Wire>,
           Fold<Isa, Wire, float, Value, Product, Wire>}};
}

// In the order of DType; the last three are not reduced.
static_assert(static_cast<int>(DType::kUint8) == 0 &&
              static_cast<int>(DType::kInt8) == 1 &&
              static_cast<int>(DType::kUint16) == 2 &&
              static_cast<int>(DType::kInt16) == 3 &&
              static_cast<int>(DType::kInt32) == 4 &&
              static_cast<int>(DType::kInt64) == 5 &&
              static_cast<int>(DType::kFloat16) == 6 &&
              static_cast<int>(DType::kBfloat16) == 7 &&
              static_cast<int>(DType::kFloat32) == 8 &&
              static_cast<int>(DType::kFloat64) == 9);

template <typename Isa>
constexpr KernelTable MakeKernelTable() {
  constexpr DType kInt64 = DType::kInt64;
  constexpr DType kFloat32 = DType::kFloat32;
  constexpr DType kFloat64 = DType::kFloat64;
  return {
      {
          MakeOwnRow<Isa, uint8_t, int64_t>(DType::kUint8, kInt64),
          MakeOwnRow<Isa, int8_t, int64_t>(DType::kInt8, kInt64),
          MakeOwnRow<Isa, uint16_t, int64_t>(DType::kUint16, kInt64),
          MakeOwnRow<Isa, int16_t, int64_t>(DType::kInt16, kInt64),
          MakeOwnRow<Isa, int32_t, int64_t>(DType::kInt32, kInt64),
          MakeOwnRow<Isa, int64_t, int64_t>(kInt64, kInt64),
          MakeRow<Isa, Float16, float, float>(kFloat32, kFloat32),
          MakeRow<Isa, Bfloat16, float, float>(kFloat32, kFloat32),
          MakeOwnRow<Isa, float, float>(kFloat32, kFloat32),
          MakeOwnRow<Isa, double, double>(kFloat64, kFloat64),
      },
      {{MakeCodec<Isa, float, Float16>(), MakeCodec<Isa, double, Float16>()},
       {MakeCodec<Isa, float, Bfloat16>(), MakeCodec<Isa, double, Bfloat16>()}},
      Isa::StreamCopy};
}

}  // namespace
}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_KERNELS_KERNELS_INL_H_
