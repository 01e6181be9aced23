// The symbol that csrc/comm/net/tls.cc looks up in libkeras_ring_tls.so.
#include <utility>

#include "csrc/tls/openssl_tls.h"

// The caller owns the result; null: `status` says why.
extern "C" __attribute__((visibility("default"))) keras_ring::Tls*
keras_ring_new_tls(const keras_ring::ProcessMemory* memory,
                   keras_ring::Status* status) {
  keras_ring::UseMemoryOfProcess(*memory);
  auto tls = keras_ring::NewOpenSslTls();
  *status = tls.status();
  return tls.ok() ? std::move(tls).value().release() : nullptr;
}
