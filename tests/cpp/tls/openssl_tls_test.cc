#include "csrc/tls/openssl_tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <signal.h>

#include <string>
#include <vector>

#include "csrc/testing/run_ranks.h"
#include "tests/cpp/tls/encrypted.h"

namespace keras_ring {
namespace {

class OpenSslTlsTest : public DescriptorTest {};

Result<size_t> Say(TlsSession& session, const std::string& text) {
  const iovec part = {const_cast<char*>(text.data()), text.size()};
  return session.Send(&part, 1);
}

Result<Received> Hear(TlsSession& session, std::string* text, size_t room) {
  text->assign(room, '\0');
  const iovec part = {text->data(), room};
  Result<Received> received = session.Receive(&part, 1);
  text->resize(received.ok() ? received->bytes : 0);
  return received;
}

// Two ends that have agreed, and somebody in between.
struct Tapped {
  explicit Tapped(Tls& tls = TestTls())
      : a(NewSession(wire.a().fd(), Tls::Role::kClient, "secret", tls)),
        b(NewSession(wire.b().fd(), Tls::Role::kServer, "secret", tls)) {
    KR_CHECK(Shake(*a, *b, [this] { wire.Pass(); }).ok());
  }
  Wire wire;
  std::unique_ptr<TlsSession> a, b;
};

std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i)
    text[i] = static_cast<char>(i * 31 + i / 7);
  return text;
}

// Cuts memory into parts of all sizes, empty ones too.
std::vector<iovec> Cut(const char* data, size_t bytes, size_t step) {
  std::vector<iovec> parts;
  for (size_t at = 0; at < bytes && parts.size() < 30;) {
    const size_t part = parts.size() % 2 == 0 ? std::min(step, bytes - at) : 0;
    parts.push_back({const_cast<char*>(data) + at, part});
    at += part;
    step = step * 7 % 40009 + 1;
  }
  return parts;
}

// More than a socket holds, both ways at once.
TEST_F(OpenSslTlsTest, BytesArriveAsTheyWereSent) {
  auto [a, b] = EncryptedPair();
  const Link* ends[] = {&a, &b};
  const std::string text = Pattern(5'000'000);
  RunRanks(2, [&](int end) {
    const Link& link = *ends[end];
    std::string got(text.size(), '\0');
    size_t sent = 0, received = 0;
    for (size_t turn = 1; sent < text.size() || received < got.size(); ++turn) {
      // Never less than what the last turn had to offer.
      const size_t offered = text.size() - sent;
      auto parts = Cut(text.data() + sent, offered, sent % 977 + 1);
      Result<size_t> out = link.Send(parts.data(), parts.size());
      ASSERT_TRUE(out.ok()) << out.status().ToString();
      sent += *out;
      parts = Cut(got.data() + received, got.size() - received, turn);
      Result<Received> in = link.Receive(parts.data(), parts.size());
      ASSERT_TRUE(in.ok()) << in.status().ToString();
      ASSERT_FALSE(in->ended);
      received += in->bytes;
      if (*out == 0 && in->bytes == 0) {
        const bool more = sent < text.size();
        const short events = POLLIN | (more ? POLLOUT : 0);
        ASSERT_TRUE(WaitFor(link.socket(), events, Soon()).ok());
      }
    }
    EXPECT_EQ(got, text);
  });
}

TEST_F(OpenSslTlsTest, NothingThatIsSaidCanBeReadInBetween) {
  Tapped ends;
  const std::string text = "the tensor's bytes, the tensor's bytes";
  ASSERT_TRUE(Say(*ends.a, text).ok());
  ASSERT_TRUE(Say(*ends.b, text).ok());
  ends.wire.Pass();
  std::string got;
  ASSERT_TRUE(Hear(*ends.b, &got, 100).ok());
  EXPECT_EQ(got, text);
  ASSERT_TRUE(Hear(*ends.a, &got, 100).ok());
  EXPECT_EQ(got, text);
  for (const std::string& heard : {ends.wire.from_a(), ends.wire.from_b()}) {
    EXPECT_GT(heard.size(), 2 * text.size());
    EXPECT_EQ(heard.find("tensor"), std::string::npos);
    EXPECT_EQ(heard.find("secret"), std::string::npos);
  }
}

// Each bit of it that changes is noticed, and nothing else is taken for it.
TEST_F(OpenSslTlsTest, AChangedByteIsAnErrorAndNoBytes) {
  constexpr size_t kRecordBytes = 5 + 8 + 1 + 16;
  for (size_t at = 0; at < kRecordBytes; ++at) {
    Tapped ends;
    ends.wire.change = [=](std::string& said) {
      ASSERT_EQ(said.size(), size_t{kRecordBytes});
      said[at] = static_cast<char>(said[at] ^ 1);
    };
    ASSERT_TRUE(Say(*ends.a, "8 bytes.").ok());
    ends.wire.Pass();
    std::string got;
    const Result<Received> received = Hear(*ends.b, &got, 100);
    EXPECT_EQ(got, "") << at;
    // A length that grew has it wait for more.
    if (at == 3 || at == 4) continue;
    EXPECT_FALSE(received.ok()) << at;
    EXPECT_EQ(received.status().code(), StatusCode::kUnavailable) << at;
    EXPECT_EQ(received.status().message().rfind("TLS: ", 0), 0u)
        << received.status().ToString();
  }
}

TEST_F(OpenSslTlsTest, ARecordThatIsLeftOutOrComesTwiceIsAnError) {
  for (const bool twice : {false, true}) {
    Tapped ends;
    ASSERT_TRUE(Say(*ends.a, "one").ok());
    ends.wire.change = [twice](std::string& said) {
      said = twice ? said + said : "";
    };
    ends.wire.Pass();
    ends.wire.change = nullptr;
    ASSERT_TRUE(Say(*ends.a, "two").ok());
    ends.wire.Pass();
    std::string got;
    if (twice) {
      ASSERT_TRUE(Hear(*ends.b, &got, 100).ok());
      EXPECT_EQ(got, "one");
    }
    EXPECT_FALSE(Hear(*ends.b, &got, 100).ok());
    EXPECT_EQ(got, "");
  }
}

TEST_F(OpenSslTlsTest, AnEndIsNoError) {
  for (const size_t of_record : {0, 1, 7, 29}) {
    Tapped ends;
    ends.wire.change = [=](std::string& said) { said.resize(of_record); };
    ASSERT_TRUE(Say(*ends.a, "8 bytes.").ok());
    ends.wire.Pass();
    std::string got;
    Result<Received> received = Hear(*ends.b, &got, 100);
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    EXPECT_TRUE(received->bytes == 0 && !received->ended);
    ends.wire.Cut();
    received = Hear(*ends.b, &got, 100);
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    EXPECT_TRUE(received->bytes == 0 && received->ended) << of_record;
  }
}

// What it said before it went is still to be heard.
TEST_F(OpenSslTlsTest, LastWordsAreHeardAfterASendHasFailed) {
  Tapped ends;
  ASSERT_TRUE(Say(*ends.a, "farewell").ok());
  ends.wire.Pass();
  ends.wire.Cut();
  EXPECT_FALSE(Say(*ends.b, "anything").ok());
  std::string got;
  Result<Received> received = Hear(*ends.b, &got, 100);
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  EXPECT_EQ(got, "farewell");
  received = Hear(*ends.b, &got, 100);
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  EXPECT_TRUE(received->ended);
}

TEST_F(OpenSslTlsTest, SendingToOneThatIsGoneIsAnErrorAndNoSignal) {
  ASSERT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL);
  auto [a, b] = EncryptedPair();
  b.Close();
  const std::string text(1'000'000, 'x');
  const Status status = WriteFull(a, text.data(), text.size(), Soon());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.message().find("Broken pipe") != std::string::npos ||
              status.message().find("reset") != std::string::npos)
      << status.ToString();
}

// Room for a part of a record: the rest waits in here, where poll sees nothing.
TEST_F(OpenSslTlsTest, WhatFindsNoRoomIsThereTheNextTime) {
  auto [a, b] = EncryptedPair();
  const std::string text = Pattern(16000);
  ASSERT_TRUE(WriteFull(a, text.data(), text.size(), Soon()).ok());
  std::string got(text.size(), '\0');
  for (size_t at = 0; at < got.size(); at += 100) {
    ASSERT_TRUE(ReadFull(b, got.data() + at, 100, Soon()).ok()) << at;
  }
  EXPECT_EQ(got, text);
}

TEST_F(OpenSslTlsTest, AnotherSecretIsRefused) {
  for (const char* server_secret : {"another secret", ""}) {
    Wire wire;
    auto a = NewSession(wire.a().fd(), Tls::Role::kClient, "secret");
    auto b = NewSession(wire.b().fd(), Tls::Role::kServer, server_secret);
    const Status status = Shake(*a, *b, [&] { wire.Pass(); });
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.message().rfind("TLS: ", 0), 0u) << status.ToString();
  }
}

TEST_F(OpenSslTlsTest, OneThatSpeaksNoTlsIsRefused) {
  for (const Tls::Role role : {Tls::Role::kClient, Tls::Role::kServer}) {
    auto [socket, attacker] = ConnectedPair();
    auto session = NewSession(socket.fd(), role, "secret");
    (void)session->Handshake();
    const std::string said = "GET / HTTP/1.1\r\n\r\n";
    ASSERT_TRUE(WriteFull(attacker, said.data(), said.size(), Soon()).ok());
    ASSERT_TRUE(WaitFor(socket, POLLIN, Soon()).ok());
    const Result<bool> done = session->Handshake();
    EXPECT_FALSE(done.ok());
  }
}

// A certificate proves nothing here, whoever signed it.
TEST_F(OpenSslTlsTest, ACertificateIsNotTakenForTheSecret) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  ASSERT_EQ(SSL_CTX_use_certificate(context, certificate), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(context, key), 1);
  auto [a, b] = ConnectedPair();
  SSL* server = SSL_new(context);
  SSL_set_fd(server, b.fd());
  SSL_set_accept_state(server);
  auto client = NewSession(a.fd(), Tls::Role::kClient, "secret");
  Result<bool> done = client->Handshake();
  for (int i = 0; i < 1000 && done.ok() && !*done; ++i) {
    (void)SSL_do_handshake(server);
    done = client->Handshake();
  }
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.status().message().find("certificate verify failed"),
            std::string::npos)
      << done.status().ToString();
  SSL_free(server);
  SSL_CTX_free(context);
  X509_free(certificate);
  EVP_PKEY_free(key);
}

// Neither may a client come without the exchange that keys are fresh by.
TEST_F(OpenSslTlsTest, OldVersionsAreRefused) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  auto [a, b] = ConnectedPair();
  SSL* client = SSL_new(context);
  SSL_set_fd(client, a.fd());
  SSL_set_connect_state(client);
  auto server = NewSession(b.fd(), Tls::Role::kServer, "secret");
  (void)SSL_do_handshake(client);
  ASSERT_TRUE(WaitFor(b, POLLIN, Soon()).ok());
  const Result<bool> done = server->Handshake();
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.status().message().find("unsupported protocol"),
            std::string::npos)
      << done.status().ToString();
  SSL_free(client);
  SSL_CTX_free(context);
}

// How many records of `bytes` there are in what was said.
int CountRecords(const std::string& said, size_t bytes) {
  int count = 0;
  for (size_t at = 0; at + 5 <= said.size();) {
    const size_t length = static_cast<uint8_t>(said[at + 3]) << 8 |
                          static_cast<uint8_t>(said[at + 4]);
    if (length == bytes) ++count;
    at += 5 + length;
  }
  return count;
}

TEST_F(OpenSslTlsTest, ASenderTakesNewKeysInTime) {
  auto tls = NewOpenSslTls(/*rekey_bytes=*/10'000);
  ASSERT_TRUE(tls.ok());
  Tapped ends(**tls);
  std::string got;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Say(*ends.a, Pattern(5'000)).ok());
    ends.wire.Pass();
    ASSERT_TRUE(Hear(*ends.b, &got, 10'000).ok());
    EXPECT_EQ(got, Pattern(5'000)) << i;
    ASSERT_TRUE(Say(*ends.b, "x").ok());
    ends.wire.Pass();
    ASSERT_TRUE(Hear(*ends.a, &got, 10'000).ok());
    EXPECT_EQ(got, "x");
  }
  // KeyUpdate has 5 bytes, a type and a code. None after the last.
  EXPECT_EQ(CountRecords(ends.wire.from_a(), 5 + 1 + 16), 9);
  EXPECT_EQ(CountRecords(ends.wire.from_b(), 5 + 1 + 16), 0);
}

}  // namespace
}  // namespace keras_ring
