// Where OpenSSL takes its memory. A program of its own: that is said once.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "csrc/tls/openssl_tls.h"

namespace keras_ring {
namespace {

std::atomic<int> allocated{0};
std::atomic<int> released{0};

TEST(UseMemoryOfProcessTest, OpenSslTakesIts) {
  UseMemoryOfProcess({
      [](size_t bytes) {
        ++allocated;
        return std::malloc(bytes);
      },
      [](void* memory, size_t bytes) { return std::realloc(memory, bytes); },
      [](void* memory) {
        released += memory != nullptr;
        std::free(memory);
      },
  });
  {
    auto tls = NewOpenSslTls();
    ASSERT_TRUE(tls.ok()) << tls.status().ToString();
    EXPECT_GT(allocated, 100);
  }
  EXPECT_GT(released, 100);
}

}  // namespace
}  // namespace keras_ring
