// The handshake that opens every connection of a job: each end proves that it
// holds the job's key before the other believes a byte. docs/wire_protocol.md
// has the messages and the reasons.
#ifndef KERAS_RING_COMM_NET_HANDSHAKE_H_
#define KERAS_RING_COMM_NET_HANDSHAKE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "csrc/base/deadline.h"
#include "csrc/base/sha256.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/net/tls.h"

namespace keras_ring {

// The secret of a job. It has no printer on purpose, and is wiped when it
// dies.
class JobKey {
 public:
  static constexpr size_t kBytes = 32;

  JobKey() = default;  // no key: Rendezvous refuses it
  JobKey(const JobKey&) = default;
  JobKey& operator=(const JobKey&) = default;
  ~JobKey();

  // 64 hexadecimal digits. The error does not repeat them.
  static Result<JobKey> FromHex(std::string_view hex);
  static Result<JobKey> Random();

  bool empty() const { return !set_; }
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::array<uint8_t, kBytes> bytes_ = {};
  bool set_ = false;
};

// The kind of traffic on a link; part of the authenticated hello of each
// connection.
enum class LinkKind : uint8_t {
  kStore = 0,
  kControl = 1,
  kData = 2,
  kHost = 3,
  kExchange = 4
};
inline constexpr int kNumLinkKinds = 5;

// The purpose of a link: both ends must mean the same.
struct LinkUse {
  LinkUse(LinkKind kind, uint32_t set = 0)  // NOLINT: a kind is a use
      : kind(kind), set(set) {}

  LinkKind kind;
  uint32_t set;  // the number of a process set; 0 for the whole job
};

// The dialling rank and its purpose. The client's proof covers it.
struct Hello {
  LinkKind kind = LinkKind::kStore;
  int rank = 0;
  // The number that the dialled rank gave itself for this job (0 for kStore). A
  // listener that has since passed to another job refuses it.
  uint64_t target = 0;
  uint32_t set = 0;  // see LinkUse
  bool tls = false;  // whether the client wants the link encrypted
};

// The server's answer to an authenticated hello. On the wire.
enum class Verdict : uint8_t {
  kAccepted = 0,
  kNotNow = 1,       // the job is complete or closing; try again
  kWrongTarget = 2,  // this is not the rank that you dialled
  kWrongRank = 3,    // no rank of that number dials this one
  // How the handshake itself refines kAccepted:
  kEncrypted = 4,  // TLS follows
  kTlsDiffers = 5  // one of the two wants TLS, the other does not
};
// The number of verdicts that an end may answer with.
inline constexpr int kNumVerdicts = 4;

inline constexpr uint8_t kWireProtocolVersion = 7;
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kClientOpeningBytes = 8 + kNonceBytes;
inline constexpr size_t kServerProofBytes = 8 + kNonceBytes + 32;
inline constexpr size_t kHelloBytes = 20;
inline constexpr size_t kClientProofBytes = kHelloBytes + 32;
inline constexpr size_t kVerdictBytes = 1 + 32;

// The outcome of a handshake, beside its hello.
struct Agreement {
  bool tls = false;
  // With `tls`: known to both ends of this handshake, and to nobody else.
  Sha256Digest secret = {};
};

// The blocking side that dials. Errors:
//   kUnauthenticated    the other end does not hold the key,
//   kFailedPrecondition it speaks another protocol version, is another rank, or
//                       does not take this one, or not with this TLS,
//   kUnavailable        it closed the connection or said kNotNow: try again,
//   kDeadlineExceeded.
Status ClientHandshake(const Socket& socket, const JobKey& key,
                       const Hello& hello, Deadline deadline,
                       Agreement* agreement = nullptr);

// Turns a connection into a link: ClientHandshake, then TLS if it was agreed
// on. `tls`: null where it is off.
Result<Link> OpenLink(Socket socket, const JobKey& key, Hello hello, Tls* tls,
                      Deadline deadline);

// The accepting side: a state machine that never blocks, so that one thread can
// run many, and a silent peer delays no other.
class ServerHandshake {
 public:
  enum class State {
    kPending,  // call Advance when the socket is ready for wanted_events()
    kHello,    // hello() is authentic; call Answer
    kDone,     // the verdict is sent, and TLS ready if agreed on; TakeLink
    kFailed    // not one of ours; error() says why
  };

  // `key` and `tls` must outlive the object. `tls`: null where it is off.
  ServerHandshake(Socket socket, const JobKey& key, Tls* tls = nullptr);

  State Advance();
  // Returns whether the client's first message has arrived. An honest client
  // sends it at once.
  bool opened() const { return step_ != Step::kOpening; }
  // In kHello: queues the verdict and goes on. A client is accepted if it wants
  // TLS as this rank does. A rank that connects to the store may differ in
  // that, and is served without TLS, so that the ranks can report the
  // difference.
  State Answer(Verdict verdict);

  short wanted_events() const;
  int fd() const { return socket_.fd(); }
  const Hello& hello() const { return hello_; }
  // Returns whether the verdict that was sent lets the client in.
  bool accepted() const { return accepted_; }
  const Status& error() const { return error_; }
  Link TakeLink() { return Link(std::move(socket_), std::move(session_)); }

 private:
  enum class Step { kOpening, kProof, kClientProof, kVerdict, kTls };

  State Fail(std::string why);
  State ReadInput(size_t wanted);
  State WriteOutput();
  bool OpeningLooksRight() const;
  State BuildProof();
  State CheckClientProof();
  Verdict WithTls(Verdict verdict) const;
  State StartTls();
  State AdvanceTls();

  Socket socket_;
  const JobKey& key_;
  Tls* const tls_;
  Step step_ = Step::kOpening;
  State state_ = State::kPending;
  std::string input_;
  std::string output_;
  std::string opening_;  // the client's first message, as received
  std::string proof_;    // ours, as sent
  std::string claim_;    // the client's second message: hello and proof
  Hello hello_;
  bool accepted_ = false;
  Agreement agreement_;
  std::unique_ptr<TlsSession> session_;
  Status error_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_HANDSHAKE_H_
