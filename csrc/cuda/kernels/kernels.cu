// The kernels. `make ptx` compiles them to kernels.ptx.inc, which is committed,
// so that nothing of NVIDIA's is needed to build the package.
//
// They use no header of CUDA's: 16-bit floats are converted by instructions.
// Compiled without contraction of products and sums, for the bits of a result
// are those of the processor's kernels.
#include "csrc/cuda/kernels/arguments.h"

namespace {

using namespace keras_ring::cuda;

struct Float16 {
  unsigned short bits;
};
struct Bfloat16 {
  unsigned short bits;
};

template <typename A, typename B>
struct IsSame {
  static constexpr bool value = false;
};
template <typename A>
struct IsSame<A, A> {
  static constexpr bool value = true;
};
template <bool condition, typename A, typename B>
struct Choose {
  using Type = A;
};
template <typename A, typename B>
struct Choose<false, A, B> {
  using Type = B;
};
template <typename T>
struct IsFloat {
  static constexpr bool value =
      IsSame<T, float>::value || IsSame<T, double>::value;
};

// --- Conversions ---

__device__ inline float Widen(Float16 value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
}
__device__ inline float Widen(Bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
template <typename T>
__device__ inline T Widen(T value) {
  return value;
}

// To nearest even.
template <typename To>
struct Round {
  template <typename From>
  static __device__ inline To Of(From value) {
    return static_cast<To>(value);
  }
};
// To an odd float if `value` is not one: what is rounded again from there, to
// fewer bits, has been rounded once.
__device__ inline float ToOddFloat(double value) {
  float narrow;
  asm("cvt.rz.f32.f64 %0, %1;" : "=f"(narrow) : "d"(value));
  if (static_cast<double>(narrow) != value) {
    narrow = __uint_as_float(__float_as_uint(narrow) | 1);
  }
  return narrow;
}
template <>
struct Round<Float16> {
  static __device__ inline Float16 Of(float value) {
    Float16 narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
    return narrow;
  }
  static __device__ inline Float16 Of(double value) {
    return Of(ToOddFloat(value));
  }
};
template <>
struct Round<Bfloat16> {
  static __device__ inline Bfloat16 Of(float value) {
    const unsigned bits = __float_as_uint(value);
    const unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const unsigned quiet = bits >> 16 | 0x40;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return Bfloat16{static_cast<unsigned short>(is_nan ? quiet : rounded)};
  }
  static __device__ inline Bfloat16 Of(double value) {
    return Of(ToOddFloat(value));
  }
};

// --- Reductions ---

// Integers are added and multiplied as unsigned ones, which wrap.
template <typename Wide>
struct Arithmetic {
  static __device__ inline Wide Add(Wide a, Wide b) { return a + b; }
  static __device__ inline Wide Multiply(Wide a, Wide b) { return a * b; }
};
template <>
struct Arithmetic<int> {
  static __device__ inline int Add(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) +
                            static_cast<unsigned>(b));
  }
  static __device__ inline int Multiply(int a, int b) {
    return static_cast<int>(static_cast<unsigned>(a) *
                            static_cast<unsigned>(b));
  }
};
template <>
struct Arithmetic<long long> {
  static __device__ inline long long Add(long long a, long long b) {
    return static_cast<long long>(static_cast<unsigned long long>(a) +
                                  static_cast<unsigned long long>(b));
  }
  static __device__ inline long long Multiply(long long a, long long b) {
    return static_cast<long long>(static_cast<unsigned long long>(a) *
                                  static_cast<unsigned long long>(b));
  }
};

// Min and Max are NaN where either is: `a != a` holds for a NaN only, and with
// one in b nothing compares true.
template <typename Wide>
__device__ inline Wide Combine(int op, Wide a, Wide b) {
  switch (op) {
    case kFoldMin:
      return a < b || a != a ? a : b;
    case kFoldMax:
      return a > b || a != a ? a : b;
    case kFoldProduct:
      return Arithmetic<Wide>::Multiply(a, b);
    default:
      return Arithmetic<Wide>::Add(a, b);
  }
}

// The steps between an element in memory and the sum. `Value`: as it is in the
// tensors. `Wire`: as it is reduced; another one for compressed reductions.
template <typename Value, typename Wide, typename Wire>
struct Steps {
  static constexpr bool kCompresses = !IsSame<Value, Wire>::value;
  // Integers are not scaled.
  using Factor = typename Choose<IsFloat<Wide>::value, Wide, double>::Type;

  explicit __device__ Steps(const FoldArguments& args)
      : op(args.op),
        prescale(args.prescale),
        postscale(static_cast<Factor>(args.postscale)),
        divisor(args.divisor),
        inverse(1 / static_cast<Factor>(args.divisor)),
        inverts((args.divisor & (args.divisor - 1)) == 0) {}

  // What has no effect is done all the same: a product with 1 is exact, and
  // memory is slower.
  __device__ inline Wide Load(Value value) const {
    if constexpr (kCompresses) {
      return Widen(Round<Wire>::Of(value * static_cast<Value>(prescale)));
    } else if constexpr (IsFloat<Wide>::value) {
      return Widen(value) * static_cast<Wide>(prescale);
    } else {
      return value;
    }
  }

  // As in csrc/collective/kernels/fold_inl.h: a division, so that the mean of
  // equal values is that value.
  __device__ inline Value Store(Wide sum) const {
    if constexpr (IsFloat<Wide>::value) {
      // Exact for a power of two.
      sum = inverts ? sum * inverse : sum / static_cast<Wide>(divisor);
      sum *= postscale;
    } else if (divisor != 1) {
      const long long value = sum;
      sum = static_cast<Wide>(value / divisor - (value % divisor < 0 ? 1 : 0));
    }
    if constexpr (kCompresses) {
      return static_cast<Value>(Widen(Round<Wire>::Of(sum)));
    } else {
      return Round<Value>::Of(sum);
    }
  }

  const int op;
  const double prescale;
  const Factor postscale;
  const long long divisor;
  const Factor inverse;
  const bool inverts;
};

// --- Rows ---

// Returns the index of the row that `tile` belongs to.
template <typename Row>
__device__ inline int RowOf(const Row* rows, int num_rows, long long tile) {
  int low = 0;
  int high = num_rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (rows[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// Calls f(row, tile) for each tile of this block, with the row in shared
// memory: in the memory of the arguments an array cannot be indexed, and each
// thread would make a copy of its own.
template <typename Args, typename Row, typename Function>
__device__ inline void ForEachTile(const Args& args, const Row* rows,
                                   Function f) {
  __shared__ Row row;
  if (rows == nullptr && threadIdx.x == 0) row = args.only;
  int last = -1;
#pragma unroll 1
  for (long long tile = blockIdx.x; tile < args.num_tiles; tile += gridDim.x) {
    if (rows != nullptr) {
      const int index = RowOf(rows, args.num_rows, tile);
      if (index != last) {
        __syncthreads();  // nobody uses the last one any more
        const int* const from = reinterpret_cast<const int*>(rows + index);
        int* const to = reinterpret_cast<int*>(&row);
        for (int i = threadIdx.x; i < static_cast<int>(sizeof(Row) / 4);
             i += kThreads) {
          to[i] = from[i];
        }
        last = index;
      }
    }
    __syncthreads();
    f(row, tile - row.first_tile);
  }
}

// --- Folds ---

template <typename Value>
union Vector {
  uint4 bits;
  Value values[kVectorBytes / sizeof(Value)];
};

// What is loaded and stored here is not used again soon, so it need not push
// other data out of the caches.
__device__ inline uint4 LoadOnce(const void* from, long long vector) {
  uint4 loaded;
  asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
               : "l"(static_cast<const uint4*>(from) + vector));
  return loaded;
}
__device__ inline void StoreOnce(void* to, long long vector, uint4 stored) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                   static_cast<uint4*>(to) + vector),
               "r"(stored.x), "r"(stored.y), "r"(stored.z), "r"(stored.w)
               : "memory");
}

// The vectors of a thread that are summed at once, and the inputs that are
// loaded before they are added: loads that are on their way together.
constexpr int kAtOnce = 2;
constexpr int kInputsAtOnce = 2;

// A whole tile of a sum, by vectors.
template <typename Value, typename Wide, typename Wire>
__device__ inline void SumTile(const Steps<Value, Wide, Wire>& steps,
                               const FoldArguments& args, const FoldRow& row,
                               long long begin) {
  constexpr int kPerVector = kVectorBytes / sizeof(Value);
#pragma unroll 1
  for (int first = 0; first < kVectorsPerTile; first += kAtOnce) {
    const long long at =
        begin / kPerVector + first * kThreads + threadIdx.x;  // [vectors]
    Wide sums[kAtOnce][kPerVector];
#pragma unroll 1
    for (int input = 0; input < args.num_inputs; input += kInputsAtOnce) {
      Vector<Value> loaded[kInputsAtOnce][kAtOnce];
#pragma unroll
      for (int k = 0; k < kInputsAtOnce; ++k) {
        if (input + k >= args.num_inputs) break;
#pragma unroll
        for (int v = 0; v < kAtOnce; ++v) {
          loaded[k][v].bits = LoadOnce(row.inputs[input + k], at + v * kThreads);
        }
      }
#pragma unroll
      for (int k = 0; k < kInputsAtOnce; ++k) {
        if (input + k >= args.num_inputs) break;
#pragma unroll
        for (int v = 0; v < kAtOnce; ++v) {
#pragma unroll
          for (int i = 0; i < kPerVector; ++i) {
            const Wide value = steps.Load(loaded[k][v].values[i]);
            sums[v][i] = input + k == 0 ? value : sums[v][i] + value;
          }
        }
      }
    }
#pragma unroll
    for (int v = 0; v < kAtOnce; ++v) {
      Vector<Value> result;
#pragma unroll
      for (int i = 0; i < kPerVector; ++i) {
        result.values[i] = steps.Store(sums[v][i]);
      }
#pragma unroll 1
      for (int output = 0; output < args.num_outputs; ++output) {
        StoreOnce(row.outputs[output], at + v * kThreads, result.bits);
      }
    }
  }
}

template <typename Value, typename Wide, typename Wire>
__device__ inline void Fold(const FoldArguments& args) {
  constexpr long long kTile = kTileBytes / sizeof(Value);
  const Steps<Value, Wide, Wire> steps(args);
  ForEachTile(args, args.rows, [&](const FoldRow& row, long long tile) {
    const long long begin = tile * kTile;
    // Sums of floats are what trainings consist of; the others are rare, and
    // such code is long.
    if constexpr (IsFloat<Wide>::value) {
      if (row.aligned && steps.op == kFoldSum && begin + kTile <= row.count) {
        SumTile(steps, args, row, begin);
        return;
      }
    }
    const long long end = begin + kTile < row.count ? begin + kTile : row.count;
#pragma unroll 1
    for (long long i = begin + threadIdx.x; i < end; i += kThreads) {
      Wide sum = steps.Load(static_cast<const Value*>(row.inputs[0])[i]);
#pragma unroll 1
      for (int input = 1; input < args.num_inputs; ++input) {
        sum = Combine(
            steps.op, sum,
            steps.Load(static_cast<const Value*>(row.inputs[input])[i]));
      }
      const Value result = steps.Store(sum);
#pragma unroll 1
      for (int output = 0; output < args.num_outputs; ++output) {
        static_cast<Value*>(row.outputs[output])[i] = result;
      }
    }
  });
}

}  // namespace

extern "C" {

#define KR_FOLD(name, Value, Wide, Wire)                                       \
  __global__ void __launch_bounds__(kThreads) name(const FoldArguments args) { \
    Fold<Value, Wide, Wire>(args);                                             \
  }
KR_FOLD(fold_uint8, unsigned char, int, unsigned char)
KR_FOLD(fold_int8, signed char, int, signed char)
KR_FOLD(fold_uint16, unsigned short, int, unsigned short)
KR_FOLD(fold_int16, short, int, short)
KR_FOLD(fold_int32, int, int, int)
KR_FOLD(fold_int64, long long, long long, long long)
KR_FOLD(fold_float16, Float16, float, Float16)
KR_FOLD(fold_bfloat16, Bfloat16, float, Bfloat16)
KR_FOLD(fold_float32, float, float, float)
KR_FOLD(fold_float64, double, double, double)
// Averages of integers, whose sums must be exact.
KR_FOLD(mean_uint8, unsigned char, long long, unsigned char)
KR_FOLD(mean_int8, signed char, long long, signed char)
KR_FOLD(mean_uint16, unsigned short, long long, unsigned short)
KR_FOLD(mean_int16, short, long long, short)
KR_FOLD(mean_int32, int, long long, int)
KR_FOLD(mean_int64, long long, long long, long long)
// Compressed reductions.
KR_FOLD(fold_float32_as_float16, float, float, Float16)
KR_FOLD(fold_float32_as_bfloat16, float, float, Bfloat16)
KR_FOLD(fold_float64_as_float16, double, float, Float16)
KR_FOLD(fold_float64_as_bfloat16, double, float, Bfloat16)

__global__ void __launch_bounds__(kThreads) copy(const CopyArguments args) {
  ForEachTile(args, args.rows, [](const CopyRow& row, long long tile) {
    const long long begin = tile * kTileBytes;
    const long long end =
        begin + kTileBytes < row.bytes ? begin + kTileBytes : row.bytes;
    const char* const from = static_cast<const char*>(row.from) + begin;
    char* const to = static_cast<char*>(row.to) + begin;
    const int bytes = static_cast<int>(end - begin);
    int whole = 0;  // vectors
    if (row.aligned) {
      whole = bytes / kVectorBytes;
      uint4 loaded[kVectorsPerTile];
#pragma unroll
      for (int v = 0; v < kVectorsPerTile; ++v) {
        const int at = v * kThreads + threadIdx.x;
        if (at < whole) loaded[v] = reinterpret_cast<const uint4*>(from)[at];
      }
#pragma unroll
      for (int v = 0; v < kVectorsPerTile; ++v) {
        const int at = v * kThreads + threadIdx.x;
        if (at < whole) reinterpret_cast<uint4*>(to)[at] = loaded[v];
      }
    }
#pragma unroll 1
    for (int i = whole * kVectorBytes + threadIdx.x; i < bytes; i += kThreads) {
      to[i] = from[i];
    }
  });
}

}  // extern "C"
