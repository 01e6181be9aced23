// What every fuzz target is: a function that takes any bytes and comes back.
// Whatever must hold is a KR_CHECK in it.
#ifndef KERAS_RING_TESTS_FUZZ_FUZZ_TARGET_H_
#define KERAS_RING_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace keras_ring {

inline std::string_view AsText(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_FUZZ_FUZZ_TARGET_H_
