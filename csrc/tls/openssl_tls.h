// Tls by OpenSSL: TLS 1.3 without certificates. Both ends prove a secret that
// they share, and agree on keys that cannot be derived from it later.
#ifndef KERAS_RING_TLS_OPENSSL_TLS_H_
#define KERAS_RING_TLS_OPENSSL_TLS_H_

#include <cstdint>
#include <memory>

#include "csrc/base/status.h"
#include "csrc/comm/net/tls.h"

namespace keras_ring {

// Makes OpenSSL allocate through `memory`. Does nothing once OpenSSL has
// allocated anything: then the program loaded it, and it uses the program's
// allocator.
void UseMemoryOfProcess(const ProcessMemory& memory);

// `rekey_bytes`: after so many bytes a sender takes new keys. AES-GCM should
// not encrypt more than 2^24.5 records under one key (RFC 8446, 5.5).
Result<std::unique_ptr<Tls>> NewOpenSslTls(uint64_t rekey_bytes = uint64_t{64}
                                                                  << 30);

}  // namespace keras_ring

#endif  // KERAS_RING_TLS_OPENSSL_TLS_H_
