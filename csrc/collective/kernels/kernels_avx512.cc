// Compiled for AVX-512 F, BW, DQ and VL.
#include <immintrin.h>

#include "csrc/base/float16.h"
#include "csrc/collective/kernels/kernels_inl.h"
#include "csrc/collective/kernels/stream_copy_inl.h"

namespace keras_ring {
namespace {

// All lanes. The masked forms of the conversions, since g++ 12 warns of its own
// header's unmasked ones.
constexpr __mmask16 kAll = 0xffff;

struct Avx512 {
  static constexpr int kVectorBytes = 64;

  [[gnu::always_inline]] static __m512 Widen(const Float16* from) {
    return _mm512_maskz_cvtph_ps(
        kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static __m512 Widen(const Bfloat16* from) {
    const __m512i bits = _mm512_maskz_cvtepu16_epi32(
        kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, bits, 16));
  }
  [[gnu::always_inline]] static void Narrow(Float16* to, __m512 floats) {
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(to),
        _mm512_maskz_cvtps_ph(kAll, floats, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static void Narrow(Bfloat16* to, __m512 floats) {
    using Bits = Vector<uint32_t, 16>;
    const __m512i bits = reinterpret_cast<__m512i>(
        float16_internal::NarrowToBfloat16<Bits>(floats));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_maskz_cvtepi32_epi16(kAll, bits));
  }
  [[gnu::always_inline]] static void StreamLine(char* to, const char* from) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to),
                        _mm512_loadu_si512(from));
  }
  [[gnu::always_inline]] static void EndStream() { _mm_sfence(); }
  static void StreamCopy(void* to, const void* from, size_t bytes) {
    StreamLines<Avx512>(to, from, bytes);
  }
};

constexpr KernelTable kTable = MakeKernelTable<Avx512>();

}  // namespace

const KernelTable* const kAvx512Kernels = &kTable;

}  // namespace keras_ring
