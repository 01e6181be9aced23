#include "csrc/comm/net/local_socket.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

// Of this process, so that tests may run side by side.
std::string Name(const std::string& of_test) {
  return "keras_ring-test-" + std::to_string(getpid()) + "-" + of_test;
}

class LocalSocketTest : public DescriptorTest {
 protected:
  void SetUp() override {
    Result<Socket> listener = ListenLocal(Name("fixture"));
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    Result<Socket> first = ConnectLocal(Name("fixture"), Soon());
    ASSERT_TRUE(first.ok()) << first.status().ToString();
    Result<Socket> second = AcceptLocal(*listener, Soon());
    ASSERT_TRUE(second.ok()) << second.status().ToString();
    a_ = std::move(*first);
    b_ = std::move(*second);
  }
  void TearDown() override {
    a_.Close();
    b_.Close();
    DescriptorTest::TearDown();
  }

  // Eventfds that hold 1, 2, ...: so one can tell which is which.
  static std::vector<Socket> Numbered(size_t count) {
    std::vector<Socket> made;
    for (uint64_t number = 1; number <= count; ++number) {
      Result<Socket> one = NewEventFd();
      KR_CHECK(one.ok());
      KR_CHECK(write(one->fd(), &number, sizeof(number)) == sizeof(number));
      made.push_back(std::move(*one));
    }
    return made;
  }
  static std::vector<int> Fds(const std::vector<Socket>& sockets) {
    std::vector<int> fds;
    for (const Socket& socket : sockets) fds.push_back(socket.fd());
    return fds;
  }

  Socket a_, b_;
};

TEST_F(LocalSocketTest, DescriptorsArriveInOrder) {
  for (size_t count : {0, 1, 2, 63, 64, 65, 128, 200}) {
    SCOPED_TRACE(count);
    std::vector<Socket> sent = Numbered(count);
    ASSERT_TRUE(SendDescriptors(a_, Fds(sent), Soon()).ok());
    auto received = ReceiveDescriptors(b_, count, Soon());
    ASSERT_TRUE(received.ok()) << received.status().ToString();
    ASSERT_EQ(received->size(), count);
    sent.clear();  // they are duplicates
    for (size_t i = 0; i < count; ++i) {
      uint64_t number = 0;
      ASSERT_EQ(read((*received)[i].fd(), &number, sizeof(number)),
                ssize_t{sizeof(number)});
      EXPECT_EQ(number, i + 1);
      EXPECT_NE(fcntl((*received)[i].fd(), F_GETFD) & FD_CLOEXEC, 0);
    }
  }
}

// What came before and behind them on the stream stays apart.
TEST_F(LocalSocketTest, BytesAroundThemAreUntouched) {
  std::vector<Socket> sent = Numbered(3);
  ASSERT_TRUE(WriteFull(a_, "before", 6, Soon()).ok());
  ASSERT_TRUE(SendDescriptors(a_, Fds(sent), Soon()).ok());
  ASSERT_TRUE(WriteFull(a_, "behind", 6, Soon()).ok());
  char text[7] = "";
  ASSERT_TRUE(ReadFull(b_, text, 6, Soon()).ok());
  EXPECT_STREQ(text, "before");
  auto received = ReceiveDescriptors(b_, 3, Soon());
  ASSERT_TRUE(received.ok()) << received.status().ToString();
  ASSERT_TRUE(ReadFull(b_, text, 6, Soon()).ok());
  EXPECT_STREQ(text, "behind");
}

TEST_F(LocalSocketTest, TheReceiverMayWaitForThem) {
  RunRanks(2, [&](int side) {
    if (side == 0) {
      std::vector<Socket> sent = Numbered(100);
      for (const Socket& one : sent) {
        Pause(std::chrono::microseconds(100), Soon());
        EXPECT_TRUE(SendDescriptors(a_, {one.fd()}, Soon()).ok());
      }
    } else {
      auto received = ReceiveDescriptors(b_, 100, Soon());
      EXPECT_TRUE(received.ok()) << received.status().ToString();
    }
  });
}

TEST_F(LocalSocketTest, AClosedPeerIsUnavailable) {
  std::vector<Socket> sent = Numbered(2);
  ASSERT_TRUE(SendDescriptors(a_, Fds(sent), Soon()).ok());
  a_.Close();
  EXPECT_EQ(SendDescriptors(b_, Fds(sent), Soon()).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(ReceiveDescriptors(b_, 3, Soon()).status(),
            UnavailableError("the local connection was closed"));
}

TEST_F(LocalSocketTest, EveryWaitHasALimit) {
  EXPECT_EQ(ReceiveDescriptors(b_, 1, AfterMs(20)).status().code(),
            StatusCode::kDeadlineExceeded);
  Result<Socket> listener = ListenLocal(Name("limit"));
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(AcceptLocal(*listener, AfterMs(20)).status().code(),
            StatusCode::kDeadlineExceeded);
}

TEST_F(LocalSocketTest, BytesWithoutDescriptorsAreAnError) {
  ASSERT_TRUE(WriteFull(a_, "x", 1, Soon()).ok());
  EXPECT_EQ(ReceiveDescriptors(b_, 1, Soon()).status().code(),
            StatusCode::kResourceExhausted);
}

// The system drops what this process may not have: nothing says so but a flag.
TEST_F(LocalSocketTest, ALimitOnOpenFilesIsNamed) {
  std::vector<Socket> sent = Numbered(10);
  ASSERT_TRUE(SendDescriptors(a_, Fds(sent), Soon()).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = sent.back().fd() + 4;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const Status status = ReceiveDescriptors(b_, 10, Soon()).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("ulimit -n"), std::string::npos);
}

TEST_F(LocalSocketTest, NamesAreFreeOnceTheListenerIsGone) {
  EXPECT_EQ(ConnectLocal(Name("free"), AfterMs(100)).status().code(),
            StatusCode::kUnavailable);
  for (int round = 0; round < 2; ++round) {
    Result<Socket> listener = ListenLocal(Name("free"));
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    EXPECT_EQ(ListenLocal(Name("free")).status().code(),
              StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace keras_ring
