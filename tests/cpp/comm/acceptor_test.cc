#include "csrc/comm/net/acceptor.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <atomic>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/base/sha256.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AcceptorTest : public DescriptorTest {
 protected:
  // Opens `acceptor_` on `port_`.
  void Open(AcceptorOptions options = {}) {
    OpenLater(options);
    ASSERT_TRUE(acceptor_->Start().ok());
  }

  // Who comes before it is started waits.
  void OpenLater(AcceptorOptions options = {}) {
    TestListener listener;
    port_ = listener.port;
    listener_fd_ = listener.socket.fd();
    acceptor_ = std::make_unique<Acceptor>(
        std::move(listener.socket), key_,
        [](const Hello& hello) {
          return hello.rank == 13 ? Verdict::kNotNow : Verdict::kAccepted;
        },
        [this](const Hello& hello, Link link) {
          MutexLock lock(mutex_);
          accepted_.emplace(hello.rank, std::move(link));
        },
        counters_, options);
  }

  // A first message as an honest client's.
  static std::string Opening() {
    std::string opening("KRNG");
    opening += static_cast<char>(kWireProtocolVersion);
    opening.resize(kClientOpeningBytes, '\0');
    return opening;
  }

  void TearDown() override {
    acceptor_.reset();
    accepted_.clear();
    unauthenticated_.clear();
    DescriptorTest::TearDown();
  }

  // A member of the job comes to the door.
  Status Join(int rank, Deadline deadline = Soon()) {
    KR_ASSIGN_OR_RETURN(Socket socket, Connect("127.0.0.1", port_, deadline));
    return ClientHandshake(socket, key_, {LinkKind::kData, rank, 0}, deadline);
  }

  // An unauthenticated peer comes, says `bytes` and stays.
  void AddUnauthenticated(const std::string& bytes) {
    Result<Socket> socket = Connect("127.0.0.1", port_, Soon());
    ASSERT_TRUE(socket.ok()) << socket.status().ToString();
    ASSERT_TRUE(WriteFull(*socket, bytes.data(), bytes.size(), Soon()).ok());
    unauthenticated_.push_back(std::move(socket).value());
  }

  size_t NumAccepted() {
    MutexLock lock(mutex_);
    return accepted_.size();
  }

  // How many connections have yet to be accepted.
  int NumWaiting() const {
    tcp_info info = {};
    socklen_t size = sizeof(info);
    KR_CHECK(getsockopt(listener_fd_, IPPROTO_TCP, TCP_INFO, &info, &size) ==
             0);
    return static_cast<int>(info.tcpi_unacked);
  }

  bool WaitForRejections(uint64_t count) {
    return Eventually(
        [&] { return counters_.rejected_connections.load() == count; });
  }

  const JobKey key_ = NewKey();
  LogCapture logs_;
  Counters counters_;
  uint16_t port_ = 0;
  int listener_fd_ = -1;  // the acceptor's
  Mutex mutex_;
  Links accepted_;
  std::vector<Socket> unauthenticated_;
  std::unique_ptr<Acceptor> acceptor_;
};

TEST_F(AcceptorTest, MembersComeInAndOthersDoNot) {
  Open();
  EXPECT_TRUE(Join(1).ok());
  AddUnauthenticated("GET / HTTP/1.1\r\n\r\n");
  AddUnauthenticated(std::string(64, '\xff'));
  Result<Socket> wrong = Connect("127.0.0.1", port_, Soon());
  EXPECT_EQ(ClientHandshake(*wrong, NewKey(), {}, Soon()).code(),
            StatusCode::kUnauthenticated);
  wrong->Close();
  EXPECT_TRUE(WaitForRejections(3));
  EXPECT_TRUE(Join(2).ok());
  EXPECT_TRUE(Eventually([&] { return NumAccepted() == 2; }));
  // They are also told by the end of their connections.
  EXPECT_TRUE(Eventually([&] { return IsDead(unauthenticated_[0]); }));
}

TEST_F(AcceptorTest, RefusalsAreLoggedOnceInAWhile) {
  Open();
  for (int i = 0; i < 20; ++i) AddUnauthenticated("x");
  EXPECT_TRUE(WaitForRejections(20));
  EXPECT_EQ(logs_.count(LogLevel::kWarning), 1);
  EXPECT_NE(logs_.lines()[0].find("refused a connection from 127.0.0.1:"),
            std::string::npos)
      << logs_.lines()[0];
}

TEST_F(AcceptorTest, TheVerdictOfAdmitReachesTheClient) {
  Open();
  EXPECT_EQ(Join(13).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Join(14).ok());
  EXPECT_TRUE(Eventually([&] { return NumAccepted() == 1; }));
  EXPECT_EQ(counters_.rejected_connections, 0u);
}

// Silent and half-silent ones, fewer than there are places: nobody waits.
TEST_F(AcceptorTest, SilentPeersDelayNobody) {
  Open();
  for (int i = 0; i < 100; ++i) AddUnauthenticated(i % 2 == 0 ? "" : "KRNG");
  for (int rank = 20; rank < 40; ++rank) {
    EXPECT_TRUE(Join(rank, AfterMs(2000)).ok());
  }
  EXPECT_EQ(counters_.rejected_connections, 0u);
}

TEST_F(AcceptorTest, SilentPeersAreDroppedInTheEnd) {
  AcceptorOptions options;
  options.handshake_limit = milliseconds(30);
  Open(options);
  for (int i = 0; i < 5; ++i) AddUnauthenticated("KRNG");
  EXPECT_TRUE(WaitForRejections(5));
  EXPECT_TRUE(Join(1).ok());
}

TEST_F(AcceptorTest, WhenEveryPlaceIsTakenTheOldestPeersGo) {
  AcceptorOptions options;
  options.max_pending = 4;
  options.eviction_age = milliseconds(30);
  options.silence_age = milliseconds(30);
  Open(options);
  for (int i = 0; i < 9; ++i) AddUnauthenticated(i % 2 == 0 ? "" : Opening());
  EXPECT_TRUE(Join(1).ok());
  EXPECT_GE(counters_.rejected_connections, 6u);
}

// One that has said its first message may be a member on a slow host.
TEST_F(AcceptorTest, SilentPeersGoFirst) {
  AcceptorOptions options;
  options.max_pending = 2;
  options.eviction_age = seconds(20);
  options.silence_age = milliseconds(20);
  Open(options);
  AddUnauthenticated(Opening());
  AddUnauthenticated("KRNG");
  EXPECT_TRUE(Join(1).ok());
  EXPECT_TRUE(WaitForRejections(1));
  EXPECT_TRUE(Eventually([&] { return IsDead(unauthenticated_[1]); }));
  char proof[kServerProofBytes];
  EXPECT_TRUE(ReadFull(unauthenticated_[0], proof, sizeof(proof), Soon()).ok());
  EXPECT_FALSE(IsDead(unauthenticated_[0]));
}

// However many wait to be accepted, who is inside has a turn in between.
TEST_F(AcceptorTest, AQueueAtTheDoorHoldsUpNobodyInside) {
  constexpr int kUnauthenticated = 1500;
  bool overtook = false;
  // The member's own thread may get no time from the system meanwhile.
  for (int attempt = 0; attempt < 10 && !overtook; ++attempt) {
    OpenLater();
    Result<Socket> member = Connect("127.0.0.1", port_, Soon());
    ASSERT_TRUE(member.ok());
    RunRanks(2, [&](int side) {
      if (side == 0) {
        // Its second message comes when others have been looked at.
        const std::string opening = Opening();
        std::string proof(kServerProofBytes, '\0');
        std::string claim(kHelloBytes, '\0');
        EXPECT_TRUE(
            WriteFull(*member, opening.data(), opening.size(), Soon()).ok());
        EXPECT_TRUE(ReadFull(*member, proof.data(), proof.size(), Soon()).ok());
        EXPECT_TRUE(Eventually(
            [&] { return counters_.rejected_connections.load() > 0; }));
        claim +=
            AsBytes(HmacSha256(key_.bytes(), "keras_ring handshake: client" +
                                                 opening + proof + claim));
        EXPECT_TRUE(
            WriteFull(*member, claim.data(), claim.size(), Soon()).ok());
        char verdict[kVerdictBytes] = {1};
        EXPECT_TRUE(ReadFull(*member, verdict, sizeof(verdict), Soon()).ok());
        EXPECT_EQ(verdict[0], 0);
        overtook = counters_.rejected_connections.load() < kUnauthenticated;
        return;
      }
      for (int i = 0; i < kUnauthenticated; ++i) {
        Result<Socket> socket = Connect("127.0.0.1", port_, Soon());
        ASSERT_TRUE(socket.ok()) << socket.status().ToString();
        ASSERT_TRUE(WriteFull(*socket, "G", 1, Soon()).ok());
      }
      // Connected here is not yet there.
      ASSERT_TRUE(
          Eventually([&] { return NumWaiting() == kUnauthenticated + 1; }));
      ASSERT_TRUE(acceptor_->Start().ok());
      EXPECT_TRUE(WaitForRejections(kUnauthenticated));
    });
    acceptor_.reset();
    accepted_.clear();
    counters_.rejected_connections = 0;
  }
  EXPECT_TRUE(overtook);
}

// Members come in while unauthenticated peers of several kinds keep coming:
// there are always more of them than places.
TEST_F(AcceptorTest, MembersComeInDuringAFlood) {
  AcceptorOptions options;
  options.max_pending = 16;
  options.eviction_age = milliseconds(20);
  options.silence_age = milliseconds(5);
  Open(options);
  std::atomic<bool> over{false};
  std::atomic<uint64_t> knocked{0};
  RunRanks(3, [&](int side) {
    if (side == 0) {
      for (int rank = 20; rank < 40; ++rank) {
        Status status = UnavailableError("");
        // As those who dial do.
        while (status.code() == StatusCode::kUnavailable) status = Join(rank);
        EXPECT_TRUE(status.ok()) << status.ToString();
      }
      EXPECT_TRUE(Eventually([&] { return knocked.load() > 200; }));
      over = true;
      return;
    }
    const std::string words[] = {"", "GET / HTTP/1.1\r\n", "KRNG", Opening(),
                                 Opening() + std::string(52, 'x')};
    std::list<Socket> open;
    while (!over) {
      if (knocked.load() > counters_.rejected_connections.load() + 60) {
        Pause(milliseconds(1), Soon());
        continue;
      }
      Result<Socket> socket = Connect("127.0.0.1", port_, Soon());
      ASSERT_TRUE(socket.ok());
      const std::string& said = words[knocked++ % std::size(words)];
      (void)WriteFull(*socket, said.data(), said.size(), Soon());
      open.push_back(std::move(socket).value());
      if (open.size() > 100) open.pop_front();
    }
  });
  // The verdict reaches a member before the link reaches us.
  EXPECT_TRUE(Eventually([&] { return NumAccepted() == 20; }));
}

// More members at once than there are places, none of them evicted.
TEST_F(AcceptorTest, ManyMembersAtOnce) {
  AcceptorOptions options;
  options.max_pending = 4;
  options.eviction_age = seconds(20);
  options.silence_age = seconds(20);
  Open(options);
  RunRanks(12, [&](int rank) {
    Status status = Join(rank);
    EXPECT_TRUE(status.ok()) << status.ToString();
  });
  EXPECT_TRUE(Eventually([&] { return NumAccepted() == 12; }));
  EXPECT_EQ(counters_.rejected_connections, 0u);
}

TEST_F(AcceptorTest, StopEndsUnfinishedHandshakes) {
  Open();
  AddUnauthenticated("");
  acceptor_->Stop();
  acceptor_->Stop();
  EXPECT_TRUE(Eventually([&] { return IsDead(unauthenticated_[0]); }));
  EXPECT_EQ(Join(1).code(), StatusCode::kUnavailable);
}

TEST_F(AcceptorTest, StopRacesWithMembers) {
  for (int round = 0; round < 20; ++round) {
    Open();
    RunRanks(3, [&](int rank) {
      if (rank == 0) {
        acceptor_->Stop();
        return;
      }
      Status status = Join(rank);
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kUnavailable)
          << status.ToString();
    });
    accepted_.clear();
  }
}

}  // namespace
}  // namespace keras_ring
