#include "csrc/collective/pack.h"

#include <cstring>
#include <type_traits>

#include "csrc/base/float16.h"

namespace keras_ring {
namespace {

template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, Float16>) {
    return ToFloat16(value);
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return ToBfloat16(value);
  } else if constexpr (std::is_same_v<From, Float16> ||
                       std::is_same_v<From, Bfloat16>) {
    return ToFloat(value);
  } else {
    return static_cast<To>(value);
  }
}

// values[i] = f(values[i]). Its own loop, since one with two pointers that may
// be equal does not vectorise.
template <typename T, typename Function>
void ApplyInPlace(T* values, int64_t count, Function f) {
  for (int64_t i = 0; i < count; ++i) values[i] = f(values[i]);
}

template <typename To, typename From, typename Function>
void Apply(To* __restrict__ to, const From* __restrict__ from, int64_t count,
           Function f) {
  for (int64_t i = 0; i < count; ++i) to[i] = f(from[i]);
}

template <typename To, typename From>
void ConvertAll(void* to, const void* from, int64_t count) {
  if constexpr (std::is_same_v<To, From>) {
    // memcpy of no bytes must still not be given null pointers.
    if (to != from && count > 0) std::memcpy(to, from, count * sizeof(To));
  } else {
    Apply(static_cast<To*>(to), static_cast<const From*>(from), count,
          [](From value) { return Convert<To>(value); });
  }
}

template <typename Value, typename Wire>
void Pack(void* wire, const void* values, int64_t count, double prescale) {
  if (std::is_integral_v<Wire> || prescale == 1.0) {
    ConvertAll<Wire, Value>(wire, values, count);
    return;
  }
  const Wire scale = static_cast<Wire>(prescale);
  auto scaled = [scale](Value value) {
    return static_cast<Wire>(Convert<Wire>(value) * scale);
  };
  if constexpr (std::is_same_v<Value, Wire>) {
    if (wire == values) {
      ApplyInPlace(static_cast<Wire*>(wire), count, scaled);
      return;
    }
  }
  Apply(static_cast<Wire*>(wire), static_cast<const Value*>(values), count,
        scaled);
}

// A division, not a multiplication by 1/divisor: a sum that is exact gives an
// exact mean then, whatever the divisor. (n times the same value in float32
// comes back as it was while the value has log2(n) mantissa bits to spare.
// Packed 16-bit floats have, always.)
template <typename Wire>
void FinishFloats(void* wire, int64_t count, const Finish& finish) {
  Wire* values = static_cast<Wire*>(wire);
  const Wire divisor = static_cast<Wire>(finish.divisor);
  const Wire scale = static_cast<Wire>(finish.postscale);
  if (finish.divisor != 1 && finish.postscale != 1.0) {
    ApplyInPlace(values, count,
                 [=](Wire value) { return value / divisor * scale; });
  } else if (finish.divisor != 1) {
    ApplyInPlace(values, count, [=](Wire value) { return value / divisor; });
  } else if (finish.postscale != 1.0) {
    ApplyInPlace(values, count, [=](Wire value) { return value * scale; });
  }
}

template <typename Wire>
void FinishIntegers(void* wire, int64_t count, const Finish& finish) {
  if (finish.divisor == 1) return;
  ApplyInPlace(
      static_cast<Wire*>(wire), count, [divisor = finish.divisor](Wire value) {
        // C++ rounds towards zero; the remainder has value's sign.
        const int64_t wide = value;
        return static_cast<Wire>(wide / divisor - (wide % divisor < 0 ? 1 : 0));
      });
}

template <typename Value, typename Wire>
constexpr WireFormat MakeFormat(DType wire) {
  WireFormat format;
  format.dtype = wire;
  format.element_size = sizeof(Wire);
  format.converts = !std::is_same_v<Value, Wire>;
  format.pack = Pack<Value, Wire>;
  format.unpack = ConvertAll<Value, Wire>;
  if constexpr (std::is_integral_v<Wire>) {
    format.finish = FinishIntegers<Wire>;
  } else {
    format.finish = FinishFloats<Wire>;
  }
  return format;
}

struct Row {
  DType dtype;
  WireFormat usual;
  WireFormat average;
};

template <typename Value, typename Wire>
constexpr Row FloatingRow(DType dtype, DType wire) {
  return {dtype, MakeFormat<Value, Wire>(wire), MakeFormat<Value, Wire>(wire)};
}

template <typename Value>
constexpr Row IntegerRow(DType dtype) {
  return {dtype, MakeFormat<Value, Value>(dtype),
          MakeFormat<Value, int64_t>(DType::kInt64)};
}

constexpr Row kRows[] = {
    IntegerRow<uint8_t>(DType::kUint8),
    IntegerRow<int8_t>(DType::kInt8),
    IntegerRow<uint16_t>(DType::kUint16),
    IntegerRow<int16_t>(DType::kInt16),
    IntegerRow<int32_t>(DType::kInt32),
    IntegerRow<int64_t>(DType::kInt64),
    FloatingRow<Float16, float>(DType::kFloat16, DType::kFloat32),
    FloatingRow<Bfloat16, float>(DType::kBfloat16, DType::kFloat32),
    FloatingRow<float, float>(DType::kFloat32, DType::kFloat32),
    FloatingRow<double, double>(DType::kFloat64, DType::kFloat64),
};

}  // namespace

const WireFormat* FindWireFormat(DType dtype, ReduceOp op) {
  for (const Row& row : kRows) {
    if (row.dtype != dtype) continue;
    return op == ReduceOp::kAverage ? &row.average : &row.usual;
  }
  return nullptr;
}

}  // namespace keras_ring
