#include "csrc/comm/net/handshake.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <random>
#include <string>
#include <utility>

#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

using State = ServerHandshake::State;

// Drives the server's side until it needs more than what has come.
State DriveUntil(ServerHandshake& server, Deadline deadline, Verdict verdict) {
  while (true) {
    State state = server.Advance();
    if (state == State::kHello) state = server.Answer(verdict);
    if (state != State::kPending) return state;
    pollfd entry = {server.fd(), server.wanted_events(), 0};
    if (poll(&entry, 1, deadline.PollTimeoutMs()) == 0) return State::kPending;
  }
}

class HandshakeTest : public DescriptorTest {
 protected:
  HandshakeTest() {
    auto [client, server] = ConnectedPair();
    client_ = std::move(client);
    server_ = std::make_unique<ServerHandshake>(std::move(server), key_);
  }

  void TearDown() override {
    client_.Close();
    server_.reset();
    DescriptorTest::TearDown();
  }

  // Runs both sides; returns the client's status.
  Status RunBoth(const JobKey& client_key, const Hello& hello,
                 Verdict verdict = Verdict::kAccepted) {
    Status client_status;
    RunRanks(2, [&](int side) {
      if (side == 0) {
        client_status = ClientHandshake(client_, client_key, hello, Soon());
        if (!client_status.ok()) client_.Close();
      } else {
        state_ = DriveUntil(*server_, Soon(), verdict);
        if (state_ != State::kDone) server_.reset();
      }
    });
    return client_status;
  }

  // What the server's state is after the client has said just `bytes`.
  State AfterBytes(const std::string& bytes, int wait_ms = 50) {
    KR_CHECK(WriteFull(client_, bytes.data(), bytes.size(), Soon()).ok());
    return DriveUntil(*server_, AfterMs(wait_ms), Verdict::kAccepted);
  }

  static std::string Opening(char nonce_byte) {
    return std::string("KRNG") + static_cast<char>(kWireProtocolVersion) +
           std::string(3, '\0') + std::string(kNonceBytes, nonce_byte);
  }

  static std::string Heard(const Socket& socket, size_t bytes) {
    std::string heard(bytes, '\0');
    EXPECT_TRUE(ReadFull(socket, heard.data(), bytes, Soon()).ok());
    return heard;
  }

  static void Say(const Socket& socket, const std::string& bytes) {
    EXPECT_TRUE(WriteFull(socket, bytes.data(), bytes.size(), Soon()).ok());
  }

  const JobKey key_ = NewKey();
  Socket client_;
  std::unique_ptr<ServerHandshake> server_;
  State state_ = State::kPending;
};

TEST_F(HandshakeTest, BothHoldTheKey) {
  Hello hello = {LinkKind::kData, 12345, 0xfedcba9876543210, 0x89abcdef};
  Status status = RunBoth(key_, hello);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(state_, State::kDone);
  EXPECT_EQ(server_->hello().kind, LinkKind::kData);
  EXPECT_EQ(server_->hello().rank, 12345);
  EXPECT_EQ(server_->hello().target, 0xfedcba9876543210);
  EXPECT_EQ(server_->hello().set, 0x89abcdef);
  // The link begins exactly where the handshake ends.
  ASSERT_TRUE(WriteFull(client_, "link", 4, Soon()).ok());
  Link link = server_->TakeLink();
  char bytes[4];
  ASSERT_TRUE(ReadFull(link, bytes, 4, Soon()).ok());
  EXPECT_EQ(std::string(bytes, 4), "link");
}

TEST_F(HandshakeTest, AWrongKeyIsToldToTheClientInClearWords) {
  Status status = RunBoth(NewKey(), {});
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(status.message().find("does not hold this job's key"),
            std::string::npos)
      << status.ToString();
  EXPECT_EQ(state_, State::kFailed);
}

TEST_F(HandshakeTest, VerdictsReachTheClient) {
  EXPECT_EQ(RunBoth(key_, {}, Verdict::kNotNow).code(),
            StatusCode::kUnavailable);
}

TEST_F(HandshakeTest, AWrongTargetIsFinal) {
  EXPECT_EQ(RunBoth(key_, {}, Verdict::kWrongTarget).code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(HandshakeTest, AWrongRankIsFinal) {
  EXPECT_EQ(RunBoth(key_, {}, Verdict::kWrongRank).code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(HandshakeTest, GarbageIsRefusedAtTheFirstWrongByte) {
  EXPECT_EQ(AfterBytes("G"), State::kFailed);
  EXPECT_NE(server_->error().message().find("does not speak"),
            std::string::npos);
}

// A length field is what an attacker would forge elsewhere; here messages have
// fixed sizes, so such bytes are garbage like any other.
TEST_F(HandshakeTest, AHugeLengthIsGarbage) {
  EXPECT_EQ(AfterBytes(std::string(8, '\xff')), State::kFailed);
}

TEST_F(HandshakeTest, SilenceAndHalfAMessageArePending) {
  EXPECT_EQ(AfterBytes("", 5), State::kPending);
  EXPECT_EQ(AfterBytes(Opening('n').substr(0, 20), 5), State::kPending);
  client_.Close();
  EXPECT_EQ(DriveUntil(*server_, Soon(), Verdict::kAccepted), State::kFailed);
}

TEST_F(HandshakeTest, GarbageInsteadOfAProofIsRefused) {
  ASSERT_EQ(AfterBytes(Opening('n')), State::kPending);
  EXPECT_EQ(AfterBytes(std::string(kClientProofBytes, 'x')), State::kFailed);
  EXPECT_NE(server_->error().message().find("does not hold"),
            std::string::npos);
}

// Every bit of the last message is covered by the proof.
class TamperedHello : public HandshakeTest,
                      public testing::WithParamInterface<size_t> {};

TEST_P(TamperedHello, IsRefused) {
  // A relay that knows no key, and changes one bit of the hello on the way.
  auto [near, relay] = ConnectedPair();
  Hello hello = {LinkKind::kControl, 3, 77, 5};
  Status status;
  RunRanks(2, [&, &near = near, &relay = relay](int side) {
    if (side == 0) {
      status = ClientHandshake(near, key_, hello, Soon());
      return;
    }
    char bytes[128];
    ASSERT_TRUE(ReadFull(relay, bytes, kClientOpeningBytes, Soon()).ok());
    EXPECT_EQ(AfterBytes(std::string(bytes, kClientOpeningBytes)),
              State::kPending);
    ASSERT_TRUE(ReadFull(client_, bytes, kServerProofBytes, Soon()).ok());
    ASSERT_TRUE(WriteFull(relay, bytes, kServerProofBytes, Soon()).ok());
    ASSERT_TRUE(ReadFull(relay, bytes, kClientProofBytes, Soon()).ok());
    bytes[GetParam()] ^= 1;
    EXPECT_EQ(AfterBytes(std::string(bytes, kClientProofBytes)),
              State::kFailed);
    relay.Close();
  });
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
}

// The kind, the rank, the target, the process set.
INSTANTIATE_TEST_SUITE_P(Field, TamperedHello, testing::Values(0, 4, 8, 16));

// What an honest client said once does not open a second connection.
TEST_F(HandshakeTest, AReplayIsRefused) {
  auto [near, relay] = ConnectedPair();
  std::string opening, proof;
  RunRanks(2, [&, &near = near, &relay = relay](int side) {
    if (side == 0) {
      EXPECT_TRUE(ClientHandshake(near, key_, {}, Soon()).ok());
      return;
    }
    char bytes[128];
    ASSERT_TRUE(ReadFull(relay, bytes, kClientOpeningBytes, Soon()).ok());
    opening.assign(bytes, kClientOpeningBytes);
    EXPECT_EQ(AfterBytes(opening), State::kPending);
    ASSERT_TRUE(ReadFull(client_, bytes, kServerProofBytes, Soon()).ok());
    ASSERT_TRUE(WriteFull(relay, bytes, kServerProofBytes, Soon()).ok());
    ASSERT_TRUE(ReadFull(relay, bytes, kClientProofBytes, Soon()).ok());
    proof.assign(bytes, kClientProofBytes);
    EXPECT_EQ(AfterBytes(proof), State::kDone);
    ASSERT_TRUE(ReadFull(client_, bytes, kVerdictBytes, Soon()).ok());
    ASSERT_TRUE(WriteFull(relay, bytes, kVerdictBytes, Soon()).ok());
  });

  auto [again, server_end] = ConnectedPair();
  client_ = std::move(again);
  server_ = std::make_unique<ServerHandshake>(std::move(server_end), key_);
  EXPECT_EQ(AfterBytes(opening), State::kPending);
  EXPECT_EQ(AfterBytes(proof), State::kFailed);
}

// An attacker who answers a client with the client's own bytes, or with what a
// real server says in another handshake, is not believed.
TEST_F(HandshakeTest, AReflectionIsRefused) {
  auto [near, attacker] = ConnectedPair();
  Status status;
  RunRanks(2, [&, &near = near, &attacker = attacker](int side) {
    if (side == 0) {
      status = ClientHandshake(near, key_, {}, Soon());
      return;
    }
    char opening[kClientOpeningBytes];
    ASSERT_TRUE(ReadFull(attacker, opening, sizeof(opening), Soon()).ok());
    std::string echo(opening, sizeof(opening));
    echo.resize(kServerProofBytes, 'p');
    ASSERT_TRUE(WriteFull(attacker, echo.data(), echo.size(), Soon()).ok());
  });
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
}

// An attacker listens where a rank of the job has been, and has the client's
// messages answered by another rank of it. That one's proof is good, but its
// verdict says that the hello was not for it; and no other verdict is to be
// had.
class PassedOn : public HandshakeTest,
                 public testing::WithParamInterface<const char*> {
 protected:
  // What the attacker says in the end, having heard the whole exchange.
  std::string LastWord(const std::string& claim, const std::string& verdict) {
    const std::string accepted(1, '\0');
    const std::string way = GetParam();
    if (way == "no proof") return accepted + std::string(32, '\0');
    if (way == "another verdict's") return accepted + verdict.substr(1);
    if (way == "the client's") return accepted + claim.substr(kHelloBytes);
    if (way == "one bit less") {
      std::string changed = verdict;
      changed.back() ^= 1;
      return changed;
    }
    return earlier_;  // "an earlier handshake's"
  }

  std::string earlier_;
};

TEST_P(PassedOn, IsNotBelieved) {
  const Hello hello = {LinkKind::kControl, 3, 77, 5};
  // Another rank lets the same client in.
  ASSERT_TRUE(RunBoth(key_, hello).ok());
  {
    auto [near, relay] = ConnectedPair();
    auto [client, socket] = ConnectedPair();
    client_ = std::move(client);
    server_ = std::make_unique<ServerHandshake>(std::move(socket), key_);
    RunRanks(2, [&, &near = near, &relay = relay](int side) {
      if (side == 0) {
        EXPECT_TRUE(ClientHandshake(near, key_, hello, Soon()).ok());
        return;
      }
      AfterBytes(Heard(relay, kClientOpeningBytes));
      Say(relay, Heard(client_, kServerProofBytes));
      EXPECT_EQ(AfterBytes(Heard(relay, kClientProofBytes)), State::kDone);
      earlier_ = Heard(client_, kVerdictBytes);
      Say(relay, earlier_);
    });
  }
  auto [near, attacker] = ConnectedPair();
  auto [client, socket] = ConnectedPair();
  client_ = std::move(client);
  server_ = std::make_unique<ServerHandshake>(std::move(socket), key_);
  Status status;
  RunRanks(2, [&, &near = near, &attacker = attacker](int side) {
    if (side == 0) {
      status = ClientHandshake(near, key_, hello, Soon());
      return;
    }
    AfterBytes(Heard(attacker, kClientOpeningBytes));
    Say(attacker, Heard(client_, kServerProofBytes));
    const std::string claim = Heard(attacker, kClientProofBytes);
    Say(client_, claim);
    EXPECT_EQ(DriveUntil(*server_, Soon(), Verdict::kWrongTarget),
              State::kDone);
    Say(attacker, LastWord(claim, Heard(client_, kVerdictBytes)));
  });
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated) << status.ToString();
}

INSTANTIATE_TEST_SUITE_P(Way, PassedOn,
                         testing::Values("no proof", "another verdict's",
                                         "the client's", "one bit less",
                                         "an earlier handshake's"));

// The server's own proof, sent back as the client's, fails: roles differ.
TEST_F(HandshakeTest, TheServersProofIsNotTheClients) {
  ASSERT_EQ(AfterBytes(Opening('n')), State::kPending);
  char answer[kServerProofBytes];
  ASSERT_TRUE(ReadFull(client_, answer, sizeof(answer), Soon()).ok());
  std::string reflected(kHelloBytes, '\0');
  reflected.append(answer + 8 + kNonceBytes, 32);
  EXPECT_EQ(AfterBytes(reflected), State::kFailed);
}

TEST_F(HandshakeTest, NoncesAreFresh) {
  ASSERT_EQ(AfterBytes(Opening('n')), State::kPending);
  char first[kServerProofBytes];
  ASSERT_TRUE(ReadFull(client_, first, sizeof(first), Soon()).ok());
  auto [again, server_end] = ConnectedPair();
  client_ = std::move(again);
  server_ = std::make_unique<ServerHandshake>(std::move(server_end), key_);
  ASSERT_EQ(AfterBytes(Opening('n')), State::kPending);
  char second[kServerProofBytes];
  ASSERT_TRUE(ReadFull(client_, second, sizeof(second), Soon()).ok());
  EXPECT_NE(std::string(first + 8, kNonceBytes),
            std::string(second + 8, kNonceBytes));
}

TEST_F(HandshakeTest, AnotherVersionIsNamed) {
  auto [near, other] = ConnectedPair();
  std::string answer(kServerProofBytes, '\0');
  answer.replace(0, 4, "KRNG");
  answer[4] = kWireProtocolVersion - 1;
  ASSERT_TRUE(WriteFull(other, answer.data(), answer.size(), Soon()).ok());
  Status status = ClientHandshake(near, key_, {}, Soon());
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(
      status.message().find(
          "protocol version " + std::to_string(kWireProtocolVersion - 1) +
          " there, version " + std::to_string(kWireProtocolVersion) + " here"),
      std::string::npos)
      << status.message();
}

TEST_F(HandshakeTest, AnotherProgramIsNamed) {
  auto [near, other] = ConnectedPair();
  ASSERT_TRUE(WriteFull(other, "SSH-2.0-x", 9, Soon()).ok());
  Status status = ClientHandshake(near, key_, {}, Soon());
  EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
  EXPECT_NE(status.message().find("does not speak"), std::string::npos);
}

TEST_F(HandshakeTest, ASilentServerIsLeftAtTheDeadline) {
  auto [near, silent] = ConnectedPair();
  EXPECT_EQ(ClientHandshake(near, key_, {}, AfterMs(20)).code(),
            StatusCode::kDeadlineExceeded);
}

TEST_F(HandshakeTest, RandomBytesNeverPass) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    auto [client, server_end] = ConnectedPair();
    ServerHandshake server(std::move(server_end), key_);
    // Half of them begin as they should.
    std::string bytes = seed % 2 == 0 ? Opening('r') : std::string();
    size_t more = random() % 200;
    for (size_t i = 0; i < more; ++i) bytes += static_cast<char>(random());
    ASSERT_TRUE(WriteFull(client, bytes.data(), bytes.size(), Soon()).ok());
    client.Close();
    EXPECT_EQ(DriveUntil(server, Soon(), Verdict::kAccepted), State::kFailed);
  }
}

TEST(JobKey, IsParsedFromHexadecimal) {
  const std::string hex =
      "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1EfF";
  Result<JobKey> key = JobKey::FromHex(hex);
  ASSERT_TRUE(key.ok());
  EXPECT_FALSE(key->empty());
  EXPECT_EQ(key->bytes().size(), 32u);
  EXPECT_EQ(key->bytes()[31], '\xff');
  EXPECT_EQ(key->bytes()[26], '\x1a');
  EXPECT_TRUE(JobKey().empty());
}

TEST(JobKey, ErrorsDoNotShowIt) {
  const std::string secret = "deadbeef";
  for (const std::string& hex : {secret, secret + std::string(56, 'z')}) {
    Result<JobKey> key = JobKey::FromHex(hex);
    EXPECT_EQ(key.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(key.status().message().find(secret), std::string::npos);
  }
}

}  // namespace
}  // namespace keras_ring
