// How links come to be encrypted: the handshake, the acceptor, a job's mesh.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/comm/net/acceptor.h"
#include "csrc/comm/rendezvous/rendezvous.h"
#include "csrc/comm/rendezvous/sub_mesh.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/rendezvous_peer.h"
#include "tests/cpp/tls/encrypted.h"

namespace keras_ring {
namespace {

class TlsAcceptorTest : public DescriptorTest {
 protected:
  void Open(Tls* tls) {
    TestListener listener;
    port_ = listener.port;
    AcceptorOptions options;
    options.tls = tls;
    options.handshake_limit = std::chrono::milliseconds(500);
    acceptor_ = std::make_unique<Acceptor>(
        std::move(listener.socket), key_,
        [](const Hello&) { return Verdict::kAccepted; },
        [this](const Hello&, Link link) {
          MutexLock lock(mutex_);
          accepted_.push_back(std::move(link));
        },
        counters_, options);
    ASSERT_TRUE(acceptor_->Start().ok());
  }

  void TearDown() override {
    acceptor_.reset();
    accepted_.clear();
    DescriptorTest::TearDown();
  }

  Result<Socket> Reach() { return Connect("127.0.0.1", port_, Soon()); }

  Result<Link> Join(Tls* tls, LinkKind kind = LinkKind::kData) {
    KR_ASSIGN_OR_RETURN(Socket socket, Reach());
    return OpenLink(std::move(socket), key_, {kind, 7, 0}, tls, Soon());
  }

  // A member up to the verdict, who then goes on otherwise.
  Socket JoinUpToTls(Sha256Digest* secret = nullptr) {
    Result<Socket> socket = Reach();
    KR_CHECK(socket.ok());
    Hello hello = {LinkKind::kData, 7, 0};
    hello.tls = true;
    Agreement agreement;
    const Status status =
        ClientHandshake(*socket, key_, hello, Soon(), &agreement);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(agreement.tls);
    if (secret != nullptr) *secret = agreement.secret;
    return std::move(socket).value();
  }

  size_t NumAccepted() {
    MutexLock lock(mutex_);
    return accepted_.size();
  }

  LogCapture logs_;
  const JobKey key_ = NewKey();
  Counters counters_;
  uint16_t port_ = 0;
  Mutex mutex_;
  std::vector<Link> accepted_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(TlsAcceptorTest, AMemberHasAnEncryptedLink) {
  Open(&TestTls());
  auto link = Join(&TestTls());
  ASSERT_TRUE(link.ok()) << link.status().ToString();
  ASSERT_TRUE(Eventually([&] { return NumAccepted() == 1; }));
  EXPECT_TRUE(link->encrypted());
  EXPECT_TRUE(accepted_[0].encrypted());
  ASSERT_TRUE(WriteFull(*link, "hello", 5, Soon()).ok());
  char heard[5];
  ASSERT_TRUE(ReadFull(accepted_[0], heard, 5, Soon()).ok());
  EXPECT_EQ(std::string(heard, 5), "hello");
  EXPECT_EQ(counters_.rejected_connections, 0u);
}

TEST_F(TlsAcceptorTest, EachConnectionHasASecretOfItsOwn) {
  Open(&TestTls());
  Sha256Digest first = {}, second = {};
  Socket one = JoinUpToTls(&first), other = JoinUpToTls(&second);
  EXPECT_NE(first, second);
  EXPECT_NE(AsBytes(first), key_.bytes());
}

// Who holds the key and has another handshake's secret is in the middle.
TEST_F(TlsAcceptorTest, TheSecretOfAnotherHandshakeOpensNothing) {
  Open(&TestTls());
  Socket socket = JoinUpToTls();
  auto session =
      NewSession(socket.fd(), Tls::Role::kClient, "of another handshake");
  Result<bool> done = session->Handshake();
  while (done.ok() && !*done) {
    ASSERT_TRUE(WaitFor(socket, session->wanted_events(), Soon()).ok());
    done = session->Handshake();
  }
  EXPECT_FALSE(done.ok());
  EXPECT_TRUE(Eventually([&] { return counters_.rejected_connections == 1; }));
  EXPECT_EQ(NumAccepted(), 0u);
}

TEST_F(TlsAcceptorTest, OneThatGoesOnWithoutTlsIsRefused) {
  Open(&TestTls());
  Socket socket = JoinUpToTls();
  ASSERT_TRUE(WriteFull(socket, std::string(64, 'x').data(), 64, Soon()).ok());
  EXPECT_TRUE(Eventually([&] { return counters_.rejected_connections == 1; }));
  EXPECT_EQ(NumAccepted(), 0u);
}

TEST_F(TlsAcceptorTest, OneThatStallsInTlsIsDroppedAndHoldsUpNobody) {
  Open(&TestTls());
  Socket silent = JoinUpToTls();
  // A record that says it is long, and comes no further.
  Socket half = JoinUpToTls();
  ASSERT_TRUE(WriteFull(half, "\x16\x03\x01\x02\x00\x01", 6, Soon()).ok());
  EXPECT_TRUE(Join(&TestTls()).ok());
  EXPECT_TRUE(Eventually([&] { return counters_.rejected_connections == 2; }));
  EXPECT_EQ(NumAccepted(), 1u);
}

TEST_F(TlsAcceptorTest, BothEndsMustWantIt) {
  for (Tls* of_server : {&TestTls(), static_cast<Tls*>(nullptr)}) {
    Open(of_server);
    Tls* of_client = of_server == nullptr ? &TestTls() : nullptr;
    const std::string here = of_client == nullptr ? "0" : "1";
    const std::string there = of_client == nullptr ? "1" : "0";
    for (const LinkKind kind :
         {LinkKind::kControl, LinkKind::kData, LinkKind::kHost}) {
      auto link = Join(of_client, kind);
      ASSERT_FALSE(link.ok());
      EXPECT_EQ(link.status().code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(link.status().message().find("KERAS_RING_TLS is " + here +
                                             " here and " + there + " there"),
                std::string::npos)
          << link.status().ToString();
    }
    EXPECT_EQ(NumAccepted(), 0u);
    // Through the store they tell each other.
    auto link = Join(of_client, LinkKind::kStore);
    ASSERT_TRUE(link.ok()) << link.status().ToString();
    EXPECT_FALSE(link->encrypted());
    acceptor_.reset();
    accepted_.clear();
  }
}

class TlsRendezvousTest : public DescriptorTest {
 protected:
  Result<std::unique_ptr<StartingMesh>> Join(int rank, int size, bool tls) {
    RendezvousOptions options = OptionsOfPeer(rank, size, listener_, key_);
    options.tls = tls ? &TestTls() : nullptr;
    options.host_id = "host";
    options.fingerprint = {tls ? "KERAS_RING_TLS=1" : "KERAS_RING_TLS=0"};
    return Rendezvous(options, Soon(), counters_);
  }

  void TearDown() override {
    listener_.socket.Close();
    DescriptorTest::TearDown();
  }

  const JobKey key_ = NewKey();
  Counters counters_;
  TestListener listener_;
};

TEST_F(TlsRendezvousTest, EveryLinkOfAJobAndItsSetsIsEncrypted) {
  RunRanks(4, [&](int rank) {
    auto mesh = Join(rank, 4, true);
    ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
    SubMesh set(**mesh, RankSet(1, {0, 1, 2, 3}));
    Mesh* meshes[] = {mesh->get(), &set};
    for (Mesh* of : meshes) {
      for (LinkKind kind :
           {LinkKind::kHost, LinkKind::kControl, LinkKind::kData}) {
        std::vector<int> others = {0, 1, 2, 3};
        others.erase(others.begin() + rank);
        auto links = of->Connect(kind, others, Soon());
        ASSERT_TRUE(links.ok()) << links.status().ToString();
        const char own = static_cast<char>(rank);
        for (const auto& [peer, link] : *links) {
          EXPECT_TRUE(link.encrypted());
          EXPECT_TRUE(WriteFull(link, &own, 1, Soon()).ok());
        }
        for (const auto& [peer, link] : *links) {
          char said = -1;
          EXPECT_TRUE(ReadFull(link, &said, 1, Soon()).ok());
          EXPECT_EQ(said, peer);
        }
      }
    }
  });
  EXPECT_EQ(counters_.rejected_connections, 0u);
}

TEST_F(TlsRendezvousTest, RanksThatDifferAllHaveTheSameError) {
  for (const int odd : {0, 1}) {
    RunRanks(3, [&](int rank) {
      auto mesh = Join(rank, 3, rank == odd);
      ASSERT_FALSE(mesh.ok());
      const std::string on = odd == 0 ? "rank 0" : "rank 1";
      const std::string off = odd == 0 ? "ranks 1-2" : "ranks 0, 2";
      EXPECT_EQ(mesh.status().code(), StatusCode::kFailedPrecondition);
      for (const std::string& word : {std::string("KERAS_RING_TLS"), on, off}) {
        EXPECT_NE(mesh.status().message().find(word), std::string::npos)
            << mesh.status().ToString();
      }
    });
  }
}

}  // namespace
}  // namespace keras_ring
