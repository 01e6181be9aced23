#include "csrc/tls/openssl_tls.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace keras_ring {
namespace {

// TLS_AES_128_GCM_SHA256, by name and by number.
constexpr char kCipherName[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kCipher[2] = {0x13, 0x01};
constexpr char kGroup[] = "X25519";
// The name of the secret. It need not tell which: there is one per connection.
constexpr char kIdentity[] = "keras_ring";

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Library = std::unique_ptr<OSSL_LIB_CTX, Freed<OSSL_LIB_CTX_free>>;
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Freed<SSL_free>>;
using Method = std::unique_ptr<BIO_METHOD, Freed<BIO_meth_free>>;
using Session = std::unique_ptr<SSL_SESSION, Freed<SSL_SESSION_free>>;

// The last error of OpenSSL on this thread.
std::string ErrorText() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = ERR_reason_error_string(error);
  ERR_clear_error();
  if (reason != nullptr) return std::string("TLS: ") + reason;
  return "TLS: error " + std::to_string(error);
}

class OpenSslSession final : public TlsSession {
 public:
  OpenSslSession(int fd, const Sha256Digest& secret, uint64_t rekey_bytes)
      : fd_(fd), secret_(secret), rekey_bytes_(rekey_bytes) {}
  ~OpenSslSession() override { OPENSSL_cleanse(&secret_, sizeof(secret_)); }

  Status Start(SSL_CTX* context, const BIO_METHOD* method, Tls::Role role);

  Result<bool> Handshake() override;
  short wanted_events() const override { return wanted_events_; }
  Result<size_t> Send(const iovec* parts, size_t num_parts) override;
  Result<Received> Receive(const iovec* parts, size_t num_parts) override;

  // For OpenSSL: the socket.
  static int Write(BIO* bio, const char* data, int size);
  static int Read(BIO* bio, char* data, int size);
  static long Control(BIO* bio, int command, long, void*);

 private:
  static OpenSslSession& Of(const SSL* ssl) {
    return *static_cast<OpenSslSession*>(SSL_get_app_data(ssl));
  }
  static OpenSslSession& Of(BIO* bio) {
    return *static_cast<OpenSslSession*>(BIO_get_data(bio));
  }
  static int UseSecret(SSL* ssl, const EVP_MD*, const unsigned char** identity,
                       size_t* identity_bytes, SSL_SESSION** session);
  static int FindSecret(SSL* ssl, const unsigned char* identity,
                        size_t identity_bytes, SSL_SESSION** session);
  // Null when memory runs out.
  SSL_SESSION* SecretSession() const;
  // Clears earlier errors, so that Failure reports those of this call.
  void Begin() {
    ERR_clear_error();
    error_ = 0;
  }
  Status Failure();
  Status CheckAgreed();
  Status TakeNewKeysIfDue();
  // Writes one record, or continues the one in flight. Returns 0 if nothing can
  // be written now.
  Result<size_t> SendRecord(const char* data, size_t bytes);

  const int fd_;
  Sha256Digest secret_;
  const uint64_t rekey_bytes_;
  Connection ssl_;
  short wanted_events_ = POLLIN;
  // The state that the socket reported while OpenSSL was using it.
  bool ended_ = false;
  int error_ = 0;
  size_t under_way_ = 0;  // bytes of the record that has not left in full
  uint64_t bytes_since_rekey_ = 0;
};

Status OpenSslSession::Start(SSL_CTX* context, const BIO_METHOD* method,
                             Tls::Role role) {
  ERR_clear_error();
  ssl_.reset(SSL_new(context));
  BIO* bio = ssl_ != nullptr ? BIO_new(method) : nullptr;
  if (bio == nullptr) return ResourceExhaustedError(ErrorText());
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // takes it
  SSL_set_app_data(ssl_.get(), this);
  if (role == Tls::Role::kClient) {
    // It trusts no certificates: so a peer that does not hold the secret cannot
    // present one instead.
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_set_psk_use_session_callback(ssl_.get(), UseSecret);
    SSL_set_connect_state(ssl_.get());
    wanted_events_ = POLLOUT;
  } else {
    SSL_set_psk_find_session_callback(ssl_.get(), FindSecret);
    SSL_set_accept_state(ssl_.get());
  }
  return OkStatus();
}

SSL_SESSION* OpenSslSession::SecretSession() const {
  Session session(SSL_SESSION_new());
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl_.get(), kCipher);
  if (session == nullptr || cipher == nullptr ||
      SSL_SESSION_set1_master_key(session.get(), secret_.data(),
                                  secret_.size()) != 1 ||
      SSL_SESSION_set_cipher(session.get(), cipher) != 1 ||
      SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) != 1) {
    return nullptr;
  }
  return session.release();
}

int OpenSslSession::UseSecret(SSL* ssl, const EVP_MD*,
                              const unsigned char** identity,
                              size_t* identity_bytes, SSL_SESSION** session) {
  *identity = reinterpret_cast<const unsigned char*>(kIdentity);
  *identity_bytes = std::strlen(kIdentity);
  *session = Of(ssl).SecretSession();
  return *session != nullptr;
}

int OpenSslSession::FindSecret(SSL* ssl, const unsigned char* identity,
                               size_t identity_bytes, SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity),
                       identity_bytes) != kIdentity) {
    return 1;  // without a secret, there is no handshake
  }
  *session = Of(ssl).SecretSession();
  return *session != nullptr;
}

int OpenSslSession::Write(BIO* bio, const char* data, int size) {
  OpenSslSession& self = Of(bio);
  BIO_clear_retry_flags(bio);
  while (true) {
    const ssize_t sent = send(self.fd_, data, size, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<int>(sent);
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      BIO_set_retry_write(bio);
    } else if (!self.ended_) {  // an alert that nobody is there to hear
      self.error_ = errno;
    }
    return -1;
  }
}

int OpenSslSession::Read(BIO* bio, char* data, int size) {
  OpenSslSession& self = Of(bio);
  BIO_clear_retry_flags(bio);
  while (true) {
    const ssize_t got = recv(self.fd_, data, size, 0);
    if (got > 0) return static_cast<int>(got);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) {
      self.ended_ = true;
      return 0;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      BIO_set_retry_read(bio);
    } else {
      self.error_ = errno;
    }
    return -1;
  }
}

long OpenSslSession::Control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return Of(bio).ended_ ? 1 : 0;
  return 0;
}

// Why a call has failed for good.
Status OpenSslSession::Failure() {
  if (error_ != 0) {
    ERR_clear_error();
    return UnavailableError(ErrnoText(error_));
  }
  if (ended_) {
    ERR_clear_error();
    return UnavailableError("it closed the connection");
  }
  return UnavailableError(ErrorText());
}

// Checks that both ends have proved the secret. OpenSSL calls this "reused".
Status OpenSslSession::CheckAgreed() {
  const SSL_CIPHER* cipher = SSL_get_current_cipher(ssl_.get());
  if (SSL_session_reused(ssl_.get()) != 1 ||
      SSL_version(ssl_.get()) != TLS1_3_VERSION || cipher == nullptr ||
      std::string_view(SSL_CIPHER_get_name(cipher)) != kCipherName) {
    return UnauthenticatedError("TLS: the other end did not use the secret");
  }
  return OkStatus();
}

Result<bool> OpenSslSession::Handshake() {
  Begin();
  const int result = SSL_do_handshake(ssl_.get());
  if (result == 1) {
    OPENSSL_cleanse(&secret_, sizeof(secret_));
    KR_RETURN_IF_ERROR(CheckAgreed());
    return true;
  }
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      wanted_events_ = POLLIN;
      return false;
    case SSL_ERROR_WANT_WRITE:
      wanted_events_ = POLLOUT;
      return false;
    default:
      return Failure();
  }
}

Status OpenSslSession::TakeNewKeysIfDue() {
  if (bytes_since_rekey_ < rekey_bytes_ || under_way_ > 0) return OkStatus();
  bytes_since_rekey_ = 0;
  // For this direction only: the other end does so for its own.
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
    return OkStatus();
  }
  return UnavailableError(ErrorText());
}

Result<size_t> OpenSslSession::SendRecord(const char* data, size_t bytes) {
  Begin();
  KR_RETURN_IF_ERROR(TakeNewKeysIfDue());
  if (under_way_ > 0) {
    KR_CHECK(bytes >= under_way_);
    bytes = under_way_;
  }
  const int result = SSL_write(ssl_.get(), data, static_cast<int>(bytes));
  if (result > 0) {
    under_way_ = 0;
    bytes_since_rekey_ += result;
    return static_cast<size_t>(result);
  }
  if (SSL_get_error(ssl_.get(), result) != SSL_ERROR_WANT_WRITE) {
    return Failure();
  }
  under_way_ = bytes;
  return size_t{0};
}

// Large parts go straight into records; small ones are put together first, for
// a record of each would cost a packet.
Result<size_t> OpenSslSession::Send(const iovec* parts, size_t num_parts) {
  char gathered[kMaxTlsRecordBytes];
  size_t total = 0;
  size_t part = 0;
  size_t offset = 0;
  while (true) {
    while (part < num_parts && offset == parts[part].iov_len) {
      ++part;
      offset = 0;
    }
    if (part == num_parts) return total;
    const char* data = static_cast<const char*>(parts[part].iov_base) + offset;
    size_t bytes = std::min(parts[part].iov_len - offset, kMaxTlsRecordBytes);
    if (bytes < kMaxTlsRecordBytes && part + 1 < num_parts) {
      std::memcpy(gathered, data, bytes);
      for (size_t i = part + 1; i < num_parts; ++i) {
        const size_t more =
            std::min(parts[i].iov_len, kMaxTlsRecordBytes - bytes);
        if (more == 0) continue;
        std::memcpy(gathered + bytes, parts[i].iov_base, more);
        bytes += more;
      }
      data = gathered;
    }
    KR_ASSIGN_OR_RETURN(size_t sent, SendRecord(data, bytes));
    if (sent == 0) return total;
    total += sent;
    while (sent > 0) {
      const size_t of_part = std::min(sent, parts[part].iov_len - offset);
      sent -= of_part;
      offset += of_part;
      if (offset == parts[part].iov_len) {
        ++part;
        offset = 0;
      }
    }
  }
}

Result<Received> OpenSslSession::Receive(const iovec* parts, size_t num_parts) {
  Received received;
  for (size_t part = 0; part < num_parts; ++part) {
    size_t filled = 0;
    while (filled < parts[part].iov_len) {
      Begin();
      const int result = SSL_read(
          ssl_.get(), static_cast<char*>(parts[part].iov_base) + filled,
          static_cast<int>(
              std::min<size_t>(parts[part].iov_len - filled, 1 << 30)));
      if (result > 0) {
        filled += result;
        received.bytes += result;
        // One record at a time, since the caller has other links to serve.
        if (SSL_pending(ssl_.get()) == 0) return received;
        continue;
      }
      const int error = SSL_get_error(ssl_.get(), result);
      if (error == SSL_ERROR_WANT_READ || received.bytes > 0) return received;
      if (error == SSL_ERROR_ZERO_RETURN || (ended_ && error_ == 0)) {
        ERR_clear_error();
        received.ended = true;
        return received;
      }
      return Failure();
    }
  }
  return received;
}

class OpenSslTls final : public Tls {
 public:
  explicit OpenSslTls(uint64_t rekey_bytes) : rekey_bytes_(rekey_bytes) {}

  Status Prepare();
  Result<std::unique_ptr<TlsSession>> NewSession(
      int fd, Role role, const Sha256Digest& secret) override {
    auto session = std::make_unique<OpenSslSession>(fd, secret, rekey_bytes_);
    KR_RETURN_IF_ERROR(session->Start(context_.get(), method_.get(), role));
    return std::unique_ptr<TlsSession>(std::move(session));
  }

 private:
  const uint64_t rekey_bytes_;
  // Apart from OpenSSL's own: the program's settings are not ours, and threads
  // that were not joined may use it while the process ends.
  Library library_;
  Method method_;
  Context context_;
};

Status OpenSslTls::Prepare() {
  // BoringSSL says 1.1.1 here.
  if (OpenSSL_version_num() < 0x30000000) {
    return FailedPreconditionError(
        std::string("TLS needs OpenSSL 3.0 or later; this is ") +
        OpenSSL_version(OPENSSL_VERSION));
  }
  ERR_clear_error();
  library_.reset(OSSL_LIB_CTX_new());
  method_.reset(
      BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "keras_ring"));
  context_.reset(SSL_CTX_new_ex(library_.get(), nullptr, TLS_method()));
  SSL_CTX* context = context_.get();
  if (library_ == nullptr || method_ == nullptr || context == nullptr ||
      BIO_meth_set_write(method_.get(), OpenSslSession::Write) != 1 ||
      BIO_meth_set_read(method_.get(), OpenSslSession::Read) != 1 ||
      BIO_meth_set_ctrl(method_.get(), OpenSslSession::Control) != 1 ||
      SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, kCipherName) != 1 ||
      SSL_CTX_set1_groups_list(context, kGroup) != 1 ||
      SSL_CTX_set_num_tickets(context, 0) != 1 ||
      SSL_CTX_set_max_early_data(context, 0) != 1) {
    return FailedPreconditionError(ErrorText() + " (TLS 1.3 with " +
                                   kCipherName + " and " + kGroup + ")");
  }
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  // Nor without fresh keys, whatever the system's own settings say.
  SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX |
                                     SSL_OP_ENABLE_MIDDLEBOX_COMPAT |
                                     SSL_OP_ENABLE_KTLS);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return OkStatus();
}

}  // namespace

void UseMemoryOfProcess(const ProcessMemory& memory) {
  static ProcessMemory of_process;
  of_process = memory;
  (void)CRYPTO_set_mem_functions(
      [](size_t bytes, const char*, int) { return of_process.allocate(bytes); },
      [](void* old, size_t bytes, const char*, int) {
        return of_process.reallocate(old, bytes);
      },
      [](void* old, const char*, int) { of_process.release(old); });
}

Result<std::unique_ptr<Tls>> NewOpenSslTls(uint64_t rekey_bytes) {
  auto tls = std::make_unique<OpenSslTls>(rekey_bytes);
  KR_RETURN_IF_ERROR(tls->Prepare());
  return std::unique_ptr<Tls>(std::move(tls));
}

}  // namespace keras_ring
