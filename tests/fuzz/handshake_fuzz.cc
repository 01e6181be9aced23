// The handshake: a server whose client says anything, with and without the
// key, and a client whose server says anything.
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "csrc/base/sha256.h"
#include "csrc/comm/net/handshake.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

using State = ServerHandshake::State;

const JobKey& Key() {
  static const JobKey key = [] {
    Result<JobKey> parsed = JobKey::FromHex(std::string(64, '5'));
    KR_CHECK(parsed.ok());
    return std::move(parsed).value();
  }();
  return key;
}

std::pair<Socket, Socket> Pair() {
  int fds[2];
  KR_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  return {Socket(fds[0]), Socket(fds[1])};
}

void Say(const Socket& socket, std::string_view bytes) {
  KR_CHECK(send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0 ||
           bytes.empty());
}

std::string Hear(const Socket& socket) {
  char bytes[4096];
  const ssize_t got = recv(socket.fd(), bytes, sizeof(bytes), 0);
  return std::string(bytes, std::max<ssize_t>(got, 0));
}

void CheckHello(const Hello& hello) {
  KR_CHECK(static_cast<int>(hello.kind) < kNumLinkKinds);
  KR_CHECK(hello.rank >= 0);
}

// In two pieces, and then the end.
void ServeAttacker(std::string_view first, std::string_view rest) {
  auto [client, socket] = Pair();
  ServerHandshake server(std::move(socket), Key());
  Say(client, first);
  server.Advance();
  Say(client, rest);
  server.Advance();
  client.Close();
  // Without the key nobody is let in.
  KR_CHECK(server.Advance() == State::kFailed);
  KR_CHECK(server.error().code() == StatusCode::kUnauthenticated);
  KR_CHECK(!server.error().message().empty());
}

// Someone who has the key, and a hello of any kind.
void ServeMember(std::string_view nonce, std::string_view hello,
                 Verdict verdict) {
  auto [client, socket] = Pair();
  ServerHandshake server(std::move(socket), Key());
  std::string opening("KRNG");
  opening += static_cast<char>(kWireProtocolVersion);
  opening.resize(kClientOpeningBytes - kNonceBytes, '\0');
  opening.append(nonce.substr(0, kNonceBytes));
  opening.resize(kClientOpeningBytes, '\0');
  Say(client, opening);
  KR_CHECK(server.Advance() == State::kPending);
  const std::string answer = Hear(client);
  KR_CHECK(answer.size() == kServerProofBytes);
  std::string message(hello.substr(0, kHelloBytes));
  message.resize(kHelloBytes, '\0');
  message += AsBytes(HmacSha256(Key().bytes(), "keras_ring handshake: client" +
                                                   opening + answer + message));
  Say(client, message);
  const State state = server.Advance();
  if (state == State::kFailed) {
    KR_CHECK(server.error().message() == "its hello is malformed");
    return;
  }
  KR_CHECK(state == State::kHello);
  CheckHello(server.hello());
  KR_CHECK(server.Answer(verdict) == State::kDone);
  const Hello& read = server.hello();
  if (verdict == Verdict::kAccepted && read.tls &&
      read.kind != LinkKind::kStore) {
    verdict = Verdict::kTlsDiffers;  // TLS is off here
  }
  const std::string code(1, static_cast<char>(verdict));
  KR_CHECK(Hear(client) ==
           code + std::string(AsBytes(HmacSha256(
                      Key().bytes(), "keras_ring handshake: verdict" + opening +
                                         answer + message + code))));
}

// What answers does not have the key.
void CallAttacker(std::string_view answer) {
  auto [client, server] = Pair();
  Say(server, answer);
  KR_CHECK(shutdown(server.fd(), SHUT_WR) == 0);
  const Status status = ClientHandshake(
      client, Key(), Hello(), Deadline::After(std::chrono::seconds(1)));
  KR_CHECK(status.code() == StatusCode::kUnauthenticated ||
           status.code() == StatusCode::kFailedPrecondition ||
           status.code() == StatusCode::kUnavailable);
}

void ParseKey(std::string_view hex) {
  Result<JobKey> key = JobKey::FromHex(hex);
  if (key.ok()) {
    KR_CHECK(hex.size() == 2 * JobKey::kBytes && !key->empty());
  } else {
    KR_CHECK(hex.size() != 2 * JobKey::kBytes ||
             key.status().message().find(hex) == std::string::npos);
  }
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace keras_ring;
  // More does not fit into the sockets, nor in any message.
  if (size > 1000) return 0;
  Script script(AsText(data, size));
  switch (script.Choice(4)) {
    case 0: {
      const std::string_view first = script.Text();
      ServeAttacker(first, script.Rest());
      break;
    }
    case 1: {
      const auto verdict = static_cast<Verdict>(script.Choice(kNumVerdicts));
      const std::string_view nonce = script.Text();
      ServeMember(nonce, script.Rest(), verdict);
      break;
    }
    case 2:
      CallAttacker(script.Rest());
      break;
    case 3:
      ParseKey(script.Rest());
      break;
  }
  return 0;
}
