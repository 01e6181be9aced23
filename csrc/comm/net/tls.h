// Tls: encrypts links. An interface, since csrc itself does not depend on
// OpenSSL; csrc/tls implements it, in a library that is loaded only when TLS is
// on.
#ifndef KERAS_RING_COMM_NET_TLS_H_
#define KERAS_RING_COMM_NET_TLS_H_

#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "csrc/base/sha256.h"
#include "csrc/base/status.h"

namespace keras_ring {

// The result of a link's Receive.
struct Received {
  size_t bytes = 0;    // 0: nothing now
  bool ended = false;  // the other end has closed the connection
};

// The most bytes that one TLS record holds.
inline constexpr size_t kMaxTlsRecordBytes = 16 << 10;

// One end of an encrypted connection. Never blocks. One thread at a time.
class TlsSession {
 public:
  virtual ~TlsSession() = default;

  // Continues the session's own handshake. Returns true when it is done: the
  // other end holds the secret.
  virtual Result<bool> Handshake() = 0;
  // The events to poll for before the next Handshake.
  virtual short wanted_events() const = 0;

  // Like Link's functions. If a Send took less than all, more of it is in
  // flight: the next Send must begin with the rest and be at least as long.
  virtual Result<size_t> Send(const iovec* parts, size_t num_parts) = 0;
  virtual Result<Received> Receive(const iovec* parts, size_t num_parts) = 0;
};

class Tls {
 public:
  enum class Role { kClient, kServer };

  virtual ~Tls() = default;

  // A session over the connected socket `fd`, which must outlive it. Both ends
  // must have the same `secret`, and prove so. Any thread.
  virtual Result<std::unique_ptr<TlsSession>> NewSession(
      int fd, Role role, const Sha256Digest& secret) = 0;
};

// The functions through which the whole process allocates memory. They may be
// those of a preloaded library (jemalloc), which a library bound with
// RTLD_DEEPBIND does not find by itself; and memory that one library allocated
// may be freed by another.
struct ProcessMemory {
  void* (*allocate)(size_t bytes);
  void* (*reallocate)(void* memory, size_t bytes);
  void (*release)(void* memory);
};

// Returns the implementation of this installation, which stays for the rest of
// the process. kFailedPrecondition: it was built without OpenSSL; the text says
// what to do.
Result<Tls*> LoadTls();

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_TLS_H_
