#include <cstring>

#include "csrc/base/float16.h"
#include "csrc/collective/kernels/kernels_inl.h"

namespace keras_ring {
namespace {

// x86-64 and AArch64 both have vectors of 16 bytes.
struct Baseline {
  static constexpr int kVectorBytes = 16;
  using Floats = Vector<float, 4>;
  using Bits = Vector<uint32_t, 4>;

  [[gnu::always_inline]] static Floats Widen(const Float16* from) {
    return float16_internal::WidenFloat16<Floats>(LoadBits(from));
  }
  [[gnu::always_inline]] static Floats Widen(const Bfloat16* from) {
    return reinterpret_cast<Floats>(LoadBits(from) << 16);
  }
  [[gnu::always_inline]] static void Narrow(Float16* to, Floats floats) {
    StoreBits(to, float16_internal::NarrowToFloat16<Bits>(floats));
  }
  [[gnu::always_inline]] static void Narrow(Bfloat16* to, Floats floats) {
    StoreBits(to, float16_internal::NarrowToBfloat16<Bits>(floats));
  }
  // Without stores past the caches.
  [[gnu::always_inline]] static void StreamLine(char* to, const char* from) {
    std::memcpy(to, from, kLine);
  }
  [[gnu::always_inline]] static void EndStream() {}
  static void StreamCopy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

 private:
  using Narrows = Vector<uint16_t, 4>;

  [[gnu::always_inline]] static Bits LoadBits(const void* from) {
    Narrows narrow;
    std::memcpy(&narrow, from, sizeof(narrow));
    return __builtin_convertvector(narrow, Bits);
  }
  [[gnu::always_inline]] static void StoreBits(void* to, Bits bits) {
    const Narrows narrow = __builtin_convertvector(bits, Narrows);
    std::memcpy(to, &narrow, sizeof(narrow));
  }
};

constexpr KernelTable kTable = MakeKernelTable<Baseline>();

}  // namespace

const KernelTable* const kBaselineKernels = &kTable;

}  // namespace keras_ring
