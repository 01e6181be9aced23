// Tls: what encrypts links. An interface, for csrc itself knows no OpenSSL;
// csrc/tls implements it, in a library that is loaded only when TLS is on.
#ifndef KERAS_RING_COMM_NET_TLS_H_
#define KERAS_RING_COMM_NET_TLS_H_

#include <sys/uio.h>

#include <cstddef>
#include <memory>

#include "csrc/base/sha256.h"
#include "csrc/base/status.h"

namespace keras_ring {

// What a link's Receive found.
struct Received {
  size_t bytes = 0;    // 0: nothing now
  bool ended = false;  // the other end has closed the connection
};

// The most that one record of TLS holds.
inline constexpr size_t kMaxTlsRecordBytes = 16 << 10;

// One end of an encrypted connection. Never blocks. One thread at a time.
class TlsSession {
 public:
  virtual ~TlsSession() = default;

  // Goes on with the session's own handshake. True: it is done; the other end
  // holds the secret.
  virtual Result<bool> Handshake() = 0;
  // The events to poll for before the next Handshake.
  virtual short wanted_events() const = 0;

  // As Link's. A Send that took less than all has more bytes under way: the
  // next one has to begin with what it left, and to have as much at least.
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

// The functions by which all of the process gets memory. They may be those of a
// library that was preloaded (jemalloc), which what is bound deeply does not
// find by itself; and what one library has made another may free.
struct ProcessMemory {
  void* (*allocate)(size_t bytes);
  void* (*reallocate)(void* memory, size_t bytes);
  void (*release)(void* memory);
};

// That of this installation, for the rest of the process.
// kFailedPrecondition: it was built without OpenSSL; the text says what to do.
Result<Tls*> LoadTls();

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_TLS_H_
