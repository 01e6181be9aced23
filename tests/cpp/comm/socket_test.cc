#include "csrc/comm/net/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

class SocketTest : public DescriptorTest {};

TEST_F(SocketTest, MovingPassesTheDescriptorOn) {
  auto [a, b] = ConnectedPair();
  const int fd = a.fd();
  Socket moved = std::move(a);
  EXPECT_EQ(moved.fd(), fd);
  EXPECT_FALSE(a.valid());
  b = std::move(moved);
  EXPECT_EQ(b.fd(), fd);
}

TEST_F(SocketTest, LargeDataGoesThrough) {
  auto [a, b] = ConnectedPair();
  const std::string sent(8 << 20, 'q');
  std::string got(sent.size(), '\0');
  RunRanks(2, [&, &a = a, &b = b](int side) {
    Status status = side == 0 ? WriteFull(a, sent.data(), sent.size(), Soon())
                              : ReadFull(b, got.data(), got.size(), Soon());
    EXPECT_TRUE(status.ok()) << status.ToString();
  });
  EXPECT_EQ(got, sent);
}

TEST_F(SocketTest, WaitsEndAtTheDeadline) {
  auto [a, b] = ConnectedPair();
  char byte;
  EXPECT_EQ(ReadFull(a, &byte, 1, AfterMs(10)).code(),
            StatusCode::kDeadlineExceeded);
  const std::string much(64 << 20, 'q');
  EXPECT_EQ(WriteFull(a, much.data(), much.size(), AfterMs(10)).code(),
            StatusCode::kDeadlineExceeded);
}

TEST_F(SocketTest, AClosedPeerIsUnavailable) {
  auto [a, b] = ConnectedPair();
  EXPECT_FALSE(IsDead(a));
  b.Close();
  EXPECT_TRUE(Eventually([&, &a = a] { return IsDead(a); }));
  char byte;
  EXPECT_EQ(ReadFull(a, &byte, 1, Soon()).code(), StatusCode::kUnavailable);
}

TEST_F(SocketTest, NobodyListensIsUnavailable) {
  ReservedPort nobody;
  Result<Socket> socket = Connect("127.0.0.1", nobody.port, Soon());
  EXPECT_EQ(socket.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(socket.status().message().find("Connection refused"),
            std::string::npos);
}

// It may become known: some clusters publish names late.
TEST_F(SocketTest, AnUnknownHostIsUnavailable) {
  const Status status =
      Connect("256.0.0.1.invalid-", 1, AfterMs(3000)).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message().rfind(
                "cannot resolve the host '256.0.0.1.invalid-': ", 0),
            0u)
      << status.message();
}

TEST_F(SocketTest, NamesAreResolved) {
  TestListener listener;
  Result<Socket> socket = Connect("localhost", listener.port, Soon());
  EXPECT_TRUE(socket.ok()) << socket.status().ToString();
  EXPECT_EQ(PeerName(*socket), "127.0.0.1:" + std::to_string(listener.port));
  EXPECT_EQ(*LocalAddress(*socket), "127.0.0.1");
}

TEST_F(SocketTest, SocketsAreClosedOnExecAndNonBlocking) {
  TestListener listener;
  auto [a, b] = ConnectedPair();
  auto event_fd = NewEventFd();
  for (int fd : {listener.socket.fd(), a.fd(), b.fd(), event_fd->fd()}) {
    EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_NE(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST_F(SocketTest, AnAdoptedListenerLeavesTheOriginalOpen) {
  TestListener listener;
  {
    Result<Socket> adopted = AdoptListener(listener.socket.fd());
    ASSERT_TRUE(adopted.ok());
    EXPECT_EQ(*LocalPort(*adopted), listener.port);
  }
  EXPECT_TRUE(Connect("127.0.0.1", listener.port, Soon()).ok());
}

TEST_F(SocketTest, OnlyListenersAreAdopted) {
  auto [a, b] = ConnectedPair();
  EXPECT_EQ(AdoptListener(a.fd()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(AdoptListener(-1).status().code(), StatusCode::kInvalidArgument);
  auto event_fd = NewEventFd();
  EXPECT_EQ(AdoptListener(event_fd->fd()).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(SocketTest, AListenersPortMayBeTakenOnce) {
  TestListener listener;
  Result<Socket> second = Listen("127.0.0.1", listener.port);
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("Address already in use"),
            std::string::npos);
}

TEST_F(SocketTest, AListenerEverywhereIsReachedByEveryAddress) {
  Result<Socket> listener = ListenEverywhere(0);
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  const uint16_t port = *LocalPort(*listener);
  for (const char* host : {"127.0.0.1", "127.0.1.1"}) {
    EXPECT_TRUE(Connect(host, port, Soon()).ok()) << host;
  }
  EXPECT_EQ(ListenEverywhere(port).status().code(), StatusCode::kUnavailable);
}

TEST_F(SocketTest, OneOfSeveralHostsIsReached) {
  TestListener listener;
  for (const char* hosts :
       {"no-such-host.invalid,127.0.0.1", "[::1],127.0.0.1", "127.0.0.1"}) {
    Result<Socket> socket = Connect(hosts, listener.port, Soon());
    ASSERT_TRUE(socket.ok()) << socket.status().ToString();
    EXPECT_EQ(*PeerAddress(*socket), "127.0.0.1");
  }
  EXPECT_EQ(
      Connect("no-such-host.invalid,nor.invalid", 1, Soon()).status().code(),
      StatusCode::kUnavailable);
}

TEST_F(SocketTest, PortsAreTakenFromARange) {
  // A range that is free but for its first port.
  TestListener taken;
  const auto low = taken.port;
  const PortRange ports = {low, static_cast<uint16_t>(low + 3)};
  std::vector<Socket> held;
  for (int i = 0; i < 4; ++i) {
    Result<Socket> listener = ListenInRange("127.0.0.1", ports, /*first=*/i);
    if (!listener.ok()) break;
    const uint16_t port = *LocalPort(*listener);
    EXPECT_GT(port, low);
    EXPECT_LE(port, low + 3);
    held.push_back(std::move(listener).value());
  }
  // Others may have taken one, too.
  EXPECT_GE(held.size(), 1u);
  const Status none =
      ListenInRange("127.0.0.1", {low, low}, /*first=*/5).status();
  EXPECT_EQ(none.code(), StatusCode::kUnavailable);
  EXPECT_NE(none.message().find("(KERAS_RING_PORT_RANGE) is free"),
            std::string::npos)
      << none.message();
}

TEST_F(SocketTest, HostPortBracketsIpv6) {
  EXPECT_EQ(HostPort("a.b", 7), "a.b:7");
  EXPECT_EQ(HostPort("::1", 7), "[::1]:7");
}

TEST_F(SocketTest, RandomBytesDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    std::string bytes(16, '\0');
    ASSERT_TRUE(RandomBytes(bytes.data(), bytes.size()).ok());
    seen.insert(bytes);
  }
  EXPECT_EQ(seen.size(), 100u);
}

}  // namespace
}  // namespace keras_ring
