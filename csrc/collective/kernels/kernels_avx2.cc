// Compiled for AVX2 and F16C.
#include <immintrin.h>

#include "csrc/base/float16.h"
#include "csrc/collective/kernels/kernels_inl.h"
#include "csrc/collective/kernels/stream_copy_inl.h"

namespace keras_ring {
namespace {

struct Avx2 {
  static constexpr int kVectorBytes = 32;

  [[gnu::always_inline]] static __m256 Widen(const Float16* from) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static __m256 Widen(const Bfloat16* from) {
    const __m256i bits = _mm256_cvtepu16_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  }
  [[gnu::always_inline]] static void Narrow(Float16* to, __m256 floats) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static void Narrow(Bfloat16* to, __m256 floats) {
    using Bits = Vector<uint32_t, 8>;
    const __m256i bits = reinterpret_cast<__m256i>(
        float16_internal::NarrowToBfloat16<Bits>(floats));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_packus_epi32(_mm256_castsi256_si128(bits),
                                      _mm256_extracti128_si256(bits, 1)));
  }
  [[gnu::always_inline]] static void StreamLine(char* to, const char* from) {
    const __m256i* source = reinterpret_cast<const __m256i*>(from);
    __m256i* line = reinterpret_cast<__m256i*>(to);
    const __m256i low = _mm256_loadu_si256(source);
    const __m256i high = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(line, low);
    _mm256_stream_si256(line + 1, high);
  }
  [[gnu::always_inline]] static void EndStream() { _mm_sfence(); }
  static void StreamCopy(void* to, const void* from, size_t bytes) {
    StreamLines<Avx2>(to, from, bytes);
  }
};

constexpr KernelTable kTable = MakeKernelTable<Avx2>();

}  // namespace

const KernelTable* const kAvx2Kernels = &kTable;

}  // namespace keras_ring
