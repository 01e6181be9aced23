#include "csrc/comm/net/handshake.h"

#include <errno.h>
#include <poll.h>
#include <string.h>  // explicit_bzero
#include <sys/socket.h>

#include <algorithm>

#include "csrc/base/sha256.h"
#include "csrc/base/wire.h"

namespace keras_ring {
namespace {

// "KRNG", the version, three bytes of zero. Opens both sides' first message.
constexpr char kPrefix[8] = {'K', 'R', 'N', 'G', kWireProtocolVersion, 0, 0, 0};
constexpr size_t kMagicBytes = 4;
constexpr size_t kVersionAt = 4;

std::string_view Prefix() { return {kPrefix, sizeof(kPrefix)}; }

// The roles differ in their label, so that a proof reflected to its maker, or
// replayed in the other role, proves nothing.
Sha256Digest ServerProof(const JobKey& key, std::string_view opening,
                         std::string_view server_nonce) {
  std::string message("keras_ring handshake: server");
  message.append(opening).append(server_nonce);
  return HmacSha256(key.bytes(), message);
}

Sha256Digest ClientProof(const JobKey& key, std::string_view opening,
                         std::string_view server_message,
                         std::string_view hello) {
  std::string message("keras_ring handshake: client");
  message.append(opening).append(server_message).append(hello);
  return HmacSha256(key.bytes(), message);
}

// Over the whole exchange, so that only the server that the hello was meant for
// can compute it. The server's first proof does not name the server: any rank
// of the job gives one to any client, which may pass it on.
Sha256Digest VerdictProof(const JobKey& key, std::string_view opening,
                          std::string_view server_message,
                          std::string_view claim, uint8_t verdict) {
  std::string message("keras_ring handshake: verdict");
  message.append(opening).append(server_message).append(claim);
  message += static_cast<char>(verdict);
  return HmacSha256(key.bytes(), message);
}

std::string EncodeHello(const Hello& hello) {
  WireWriter writer;
  writer.Byte(static_cast<uint8_t>(hello.kind));
  writer.Byte(hello.tls ? 1 : 0);
  writer.Raw(std::string_view("\0\0", 2));
  writer.Fixed32(static_cast<uint32_t>(hello.rank));
  writer.Fixed64(hello.target);
  writer.Fixed32(hello.set);
  return writer.Take();
}

bool DecodeHello(std::string_view bytes, Hello* hello) {
  WireReader reader(bytes);
  uint8_t kind = reader.Byte();
  uint8_t tls = reader.Byte();
  reader.Raw(2);
  uint32_t rank = reader.Fixed32();
  hello->target = reader.Fixed64();
  hello->set = reader.Fixed32();
  if (!reader.Finished() || kind >= kNumLinkKinds || tls > 1 ||
      rank > INT32_MAX) {
    return false;
  }
  hello->kind = static_cast<LinkKind>(kind);
  hello->rank = static_cast<int>(rank);
  hello->tls = tls == 1;
  return true;
}

// The secret that TLS starts from: made of the whole exchange, so that it opens
// this connection and no other. Never sent.
Sha256Digest TlsSecret(const JobKey& key, std::string_view opening,
                       std::string_view server_message, std::string_view claim,
                       std::string_view verdict) {
  std::string message("keras_ring handshake: tls");
  message.append(opening).append(server_message).append(claim).append(verdict);
  return HmacSha256(key.bytes(), message);
}

Result<std::string> NewNonce() {
  std::string nonce(kNonceBytes, '\0');
  KR_RETURN_IF_ERROR(RandomBytes(nonce.data(), nonce.size()));
  return nonce;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

const char* OnOrOff(bool on) { return on ? "1" : "0"; }

Status TlsDiffers(bool here) {
  return FailedPreconditionError(std::string("KERAS_RING_TLS is ") +
                                 OnOrOff(here) + " here and " + OnOrOff(!here) +
                                 " there");
}

Status VerdictStatus(uint8_t verdict, const Hello& hello) {
  switch (static_cast<Verdict>(verdict)) {
    case Verdict::kAccepted:
      // The store's server may differ: then the job is refused through it.
      if (hello.tls && hello.kind != LinkKind::kStore) return TlsDiffers(true);
      return OkStatus();
    case Verdict::kEncrypted:
      return hello.tls ? OkStatus() : TlsDiffers(false);
    case Verdict::kTlsDiffers:
      return TlsDiffers(hello.tls);
    case Verdict::kNotNow:
      return UnavailableError(
          "the job there is already complete, or just closing");
    case Verdict::kWrongTarget:
      return FailedPreconditionError(
          "the rank that listened there has left this job");
    case Verdict::kWrongRank:
      return FailedPreconditionError(
          "the rank there takes no such link from a rank of this number");
  }
  return InternalError("unknown verdict " + std::to_string(verdict));
}

}  // namespace

JobKey::~JobKey() { explicit_bzero(bytes_.data(), bytes_.size()); }

Result<JobKey> JobKey::FromHex(std::string_view hex) {
  if (hex.size() != 2 * kBytes) {
    return InvalidArgumentError(
        "the job key must have 64 hexadecimal digits; it has " +
        std::to_string(hex.size()) + " characters");
  }
  JobKey key;
  for (size_t i = 0; i < kBytes; ++i) {
    int high = HexDigit(hex[2 * i]);
    int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return InvalidArgumentError(
          "the job key has a character that is no hexadecimal digit");
    }
    key.bytes_[i] = static_cast<uint8_t>(high << 4 | low);
  }
  key.set_ = true;
  return key;
}

Result<JobKey> JobKey::Random() {
  JobKey key;
  KR_RETURN_IF_ERROR(RandomBytes(key.bytes_.data(), kBytes));
  key.set_ = true;
  return key;
}

Status ClientHandshake(const Socket& socket, const JobKey& key,
                       const Hello& hello, Deadline deadline,
                       Agreement* agreement) {
  const std::string context = "handshake with " + PeerName(socket);
  auto explain = [&](const Status& status) {
    return status.WithContext(context);
  };

  KR_ASSIGN_OR_RETURN(std::string nonce, NewNonce());
  std::string opening(Prefix());
  opening += nonce;
  Status status = WriteFull(socket, opening.data(), opening.size(), deadline);
  if (!status.ok()) return explain(status);

  std::string answer(kServerProofBytes, '\0');
  // The prefix first: another program may say less than a whole message.
  status = ReadFull(socket, answer.data(), sizeof(kPrefix), deadline);
  if (!status.ok()) return explain(status);
  if (answer.compare(0, kMagicBytes, kPrefix, kMagicBytes) != 0) {
    return explain(UnauthenticatedError(
        "what listens there does not speak keras_ring's protocol"));
  }
  if (answer[kVersionAt] != kPrefix[kVersionAt]) {
    return explain(FailedPreconditionError(
        "protocol version " +
        std::to_string(static_cast<uint8_t>(answer[kVersionAt])) +
        " there, version " + std::to_string(kWireProtocolVersion) + " here"));
  }
  status = ReadFull(socket, answer.data() + sizeof(kPrefix),
                    answer.size() - sizeof(kPrefix), deadline);
  if (!status.ok()) return explain(status);
  std::string_view view = answer;
  std::string_view server_nonce = view.substr(sizeof(kPrefix), kNonceBytes);
  std::string_view proof = view.substr(sizeof(kPrefix) + kNonceBytes);
  if (!ConstantTimeEqual(proof,
                         AsBytes(ServerProof(key, opening, server_nonce)))) {
    return explain(UnauthenticatedError(
        "the other end does not hold this job's key (is another job "
        "listening there, or do the ranks have different keys?)"));
  }

  std::string message = EncodeHello(hello);
  message += AsBytes(ClientProof(key, opening, answer, message));
  status = WriteFull(socket, message.data(), message.size(), deadline);
  if (!status.ok()) return explain(status);

  std::string last(kVerdictBytes, '\0');
  status = ReadFull(socket, last.data(), last.size(), deadline);
  if (!status.ok()) return explain(status);
  const uint8_t verdict = static_cast<uint8_t>(last[0]);
  const Sha256Digest expected =
      VerdictProof(key, opening, answer, message, verdict);
  if (!ConstantTimeEqual(std::string_view(last).substr(1), AsBytes(expected))) {
    return explain(UnauthenticatedError(
        "the other end does not hold this job's key: it passed on what a rank "
        "had said"));
  }
  if (agreement != nullptr &&
      static_cast<Verdict>(verdict) == Verdict::kEncrypted) {
    agreement->tls = true;
    agreement->secret = TlsSecret(key, opening, answer, message, last);
  }
  return explain(VerdictStatus(verdict, hello));
}

Result<Link> OpenLink(Socket socket, const JobKey& key, Hello hello, Tls* tls,
                      Deadline deadline) {
  hello.tls = tls != nullptr;
  Agreement agreement;
  KR_RETURN_IF_ERROR(ClientHandshake(socket, key, hello, deadline, &agreement));
  if (!agreement.tls) return Link(std::move(socket));
  KR_ASSIGN_OR_RETURN(
      std::unique_ptr<TlsSession> session,
      tls->NewSession(socket.fd(), Tls::Role::kClient, agreement.secret));
  const std::string context = "TLS handshake with " + PeerName(socket);
  while (true) {
    const Result<bool> done = session->Handshake();
    if (!done.ok()) return done.status().WithContext(context);
    if (*done) return Link(std::move(socket), std::move(session));
    const Status ready = WaitFor(socket, session->wanted_events(), deadline);
    if (!ready.ok()) return ready.WithContext(context);
  }
}

ServerHandshake::ServerHandshake(Socket socket, const JobKey& key, Tls* tls)
    : socket_(std::move(socket)), key_(key), tls_(tls) {}

short ServerHandshake::wanted_events() const {
  if (session_ != nullptr) return session_->wanted_events();
  return output_.empty() ? POLLIN : POLLOUT;
}

ServerHandshake::State ServerHandshake::Fail(std::string why) {
  error_ = UnauthenticatedError(std::move(why));
  return state_ = State::kFailed;
}

// Reads up to `wanted` bytes in all, never one more: bytes after the handshake
// belong to the link.
ServerHandshake::State ServerHandshake::ReadInput(size_t wanted) {
  while (input_.size() < wanted) {
    char bytes[kClientProofBytes];
    size_t room = std::min(sizeof(bytes), wanted - input_.size());
    ssize_t got = recv(socket_.fd(), bytes, room, 0);
    if (got > 0) {
      input_.append(bytes, got);
    } else if (got == 0) {
      return Fail(
          "it closed the connection during the handshake, as a rank with "
          "another key does");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return State::kPending;
    } else if (errno != EINTR) {
      return Fail(ErrnoText(errno));
    }
  }
  return State::kPending;
}

ServerHandshake::State ServerHandshake::WriteOutput() {
  while (!output_.empty()) {
    ssize_t sent =
        send(socket_.fd(), output_.data(), output_.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      output_.erase(0, sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return State::kPending;
    } else if (errno != EINTR) {
      return Fail(ErrnoText(errno));
    }
  }
  return State::kPending;
}

// Returns whether the bytes so far can begin an opening: a client that speaks
// HTTP is recognized at the first byte, not at the deadline.
bool ServerHandshake::OpeningLooksRight() const {
  size_t comparable = std::min(input_.size(), kMagicBytes);
  return input_.compare(0, comparable, kPrefix, comparable) == 0;
}

ServerHandshake::State ServerHandshake::BuildProof() {
  opening_ = std::exchange(input_, std::string());
  Result<std::string> nonce = NewNonce();
  if (!nonce.ok()) return Fail(nonce.status().message());
  proof_ = std::string(Prefix());
  proof_ += *nonce;
  proof_ += AsBytes(ServerProof(key_, opening_, *nonce));
  output_ = proof_;
  step_ = Step::kProof;
  return State::kPending;
}

ServerHandshake::State ServerHandshake::CheckClientProof() {
  std::string_view message = input_;
  std::string_view hello = message.substr(0, kHelloBytes);
  std::string_view proof = message.substr(kHelloBytes);
  if (!ConstantTimeEqual(proof,
                         AsBytes(ClientProof(key_, opening_, proof_, hello)))) {
    return Fail("it does not hold this job's key");
  }
  if (!DecodeHello(hello, &hello_)) return Fail("its hello is malformed");
  claim_ = std::exchange(input_, std::string());
  return state_ = State::kHello;
}

ServerHandshake::State ServerHandshake::Advance() {
  if (state_ != State::kPending) return state_;
  if (step_ == Step::kOpening) {
    if (ReadInput(kClientOpeningBytes) == State::kFailed) return state_;
    if (!OpeningLooksRight()) {
      return Fail("it does not speak keras_ring's protocol");
    }
    if (input_.size() < kClientOpeningBytes) return state_;
    // A client of another version gets our answer, so that it can say so;
    // its proof, over other bytes, then fails here.
    if (BuildProof() == State::kFailed) return state_;
  }
  if (WriteOutput() == State::kFailed || !output_.empty()) return state_;
  if (step_ == Step::kProof) step_ = Step::kClientProof;
  if (step_ == Step::kClientProof) {
    if (ReadInput(kClientProofBytes) == State::kFailed) return state_;
    if (input_.size() < kClientProofBytes) return state_;
    return CheckClientProof();
  }
  if (step_ == Step::kVerdict && agreement_.tls) return StartTls();
  if (step_ == Step::kTls) return AdvanceTls();
  return state_ = State::kDone;  // kVerdict, written
}

Verdict ServerHandshake::WithTls(Verdict verdict) const {
  if (verdict != Verdict::kAccepted) return verdict;
  if (hello_.tls && tls_ != nullptr) return Verdict::kEncrypted;
  const bool differs = hello_.tls || tls_ != nullptr;
  return differs && hello_.kind != LinkKind::kStore ? Verdict::kTlsDiffers
                                                    : verdict;
}

ServerHandshake::State ServerHandshake::StartTls() {
  step_ = Step::kTls;
  Result<std::unique_ptr<TlsSession>> session =
      tls_->NewSession(socket_.fd(), Tls::Role::kServer, agreement_.secret);
  if (!session.ok()) return Fail(session.status().message());
  session_ = std::move(session).value();
  return AdvanceTls();
}

ServerHandshake::State ServerHandshake::AdvanceTls() {
  const Result<bool> done = session_->Handshake();
  if (!done.ok()) return Fail(done.status().message());
  return *done ? state_ = State::kDone : state_;
}

ServerHandshake::State ServerHandshake::Answer(Verdict verdict) {
  KR_CHECK(state_ == State::kHello);
  KR_CHECK(static_cast<int>(verdict) < kNumVerdicts);
  verdict = WithTls(verdict);
  accepted_ = verdict == Verdict::kAccepted || verdict == Verdict::kEncrypted;
  const uint8_t code = static_cast<uint8_t>(verdict);
  output_.assign(1, static_cast<char>(code));
  output_ += AsBytes(VerdictProof(key_, opening_, proof_, claim_, code));
  if (verdict == Verdict::kEncrypted) {
    agreement_.tls = true;
    agreement_.secret = TlsSecret(key_, opening_, proof_, claim_, output_);
  }
  step_ = Step::kVerdict;
  state_ = State::kPending;
  return Advance();
}

}  // namespace keras_ring
