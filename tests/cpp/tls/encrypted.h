// What the tests of TLS have in common: encrypted links, and somebody between
// their ends.
#ifndef KERAS_RING_TESTS_TLS_ENCRYPTED_H_
#define KERAS_RING_TESTS_TLS_ENCRYPTED_H_

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/comm/net/link.h"
#include "csrc/tls/openssl_tls.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {

inline Tls& TestTls() {
  static const std::unique_ptr<Tls> tls = [] {
    auto made = NewOpenSslTls();
    KR_CHECK(made.ok());
    return std::move(made).value();
  }();
  return *tls;
}

inline Sha256Digest SecretOf(const std::string& text) { return Sha256Of(text); }

inline std::unique_ptr<TlsSession> NewSession(int fd, Tls::Role role,
                                              const std::string& secret,
                                              Tls& tls = TestTls()) {
  auto session = tls.NewSession(fd, role, SecretOf(secret));
  KR_CHECK(session.ok());
  return std::move(session).value();
}

// Runs two handshakes against each other; `between` moves what lies between
// them, if anything does. The first error.
inline Status Shake(
    TlsSession& a, TlsSession& b,
    const std::function<void()>& between = [] {}) {
  bool a_done = false, b_done = false;
  while (!a_done || !b_done) {
    if (!a_done) {
      KR_ASSIGN_OR_RETURN(a_done, a.Handshake());
    }
    between();
    if (!b_done) {
      KR_ASSIGN_OR_RETURN(b_done, b.Handshake());
    }
    between();
  }
  return OkStatus();
}

inline std::pair<Link, Link> EncryptedPair(Tls& tls = TestTls()) {
  auto [a, b] = ConnectedPair();
  auto of_a = NewSession(a.fd(), Tls::Role::kClient, "secret", tls);
  auto of_b = NewSession(b.fd(), Tls::Role::kServer, "secret", tls);
  KR_CHECK(Shake(*of_a, *of_b).ok());
  return {Link(std::move(a), std::move(of_a)),
          Link(std::move(b), std::move(of_b))};
}

// links[rank][peer], for every pair.
inline std::vector<Links> EncryptedMesh(int size) {
  std::vector<Links> links(size);
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      std::tie(links[a][b], links[b][a]) = EncryptedPair();
    }
  }
  return links;
}

// Two sockets with somebody in between who hears and may change what is said.
class Wire {
 public:
  Wire() {
    std::tie(a_, near_a_) = NewPair();
    std::tie(b_, near_b_) = NewPair();
  }

  Socket& a() { return a_; }
  Socket& b() { return b_; }
  // Passes on what has been said.
  void Pass() {
    Pass(near_a_, near_b_, from_a_);
    Pass(near_b_, near_a_, from_b_);
  }
  const std::string& from_a() const { return from_a_; }
  const std::string& from_b() const { return from_b_; }
  // Applied to what is passed on, both ways.
  std::function<void(std::string&)> change;
  // Ends the connection of `b`.
  void Cut() { near_b_.Close(); }

 private:
  static std::pair<Socket, Socket> NewPair() {
    int fds[2];
    KR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                        fds) == 0);
    return {Socket(fds[0]), Socket(fds[1])};
  }

  void Pass(const Socket& from, const Socket& to, std::string& heard) {
    char bytes[1 << 16];
    ssize_t got;
    while ((got = recv(from.fd(), bytes, sizeof(bytes), 0)) > 0) {
      std::string said(bytes, got);
      heard += said;
      if (change) change(said);
      KR_CHECK(WriteFull(to, said.data(), said.size(), Soon()).ok());
    }
  }

  Socket a_, near_a_, b_, near_b_;
  std::string from_a_, from_b_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_TLS_ENCRYPTED_H_
