#include "csrc/comm/net/connect.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

constexpr Duration kStagger = std::chrono::milliseconds(50);

// As a resolver gives them, on 127.0.0.1.
Addresses AddressesOf(const std::vector<uint16_t>& ports) {
  Addresses first;
  for (auto port = ports.rbegin(); port != ports.rend(); ++port) {
    Result<Addresses> one = Resolve("127.0.0.1", *port, AI_NUMERICHOST);
    KR_CHECK(one.ok());
    (*one)->ai_next = first.release();
    first = std::move(*one);
  }
  return first;
}

// Nobody accepts there, and nobody else finds room to wait: as if a firewall
// dropped what is sent.
class BlackHole {
 public:
  BlackHole() {
    KR_CHECK(listen(listener_.socket.fd(), 0) == 0);
    // One waits inside, and the next ones at the door.
    for (int i = 0; i < 4; ++i) {
      Result<Socket> filler =
          Connect("127.0.0.1", listener_.port, AfterMs(100));
      if (!filler.ok()) return;
      fillers_.push_back(std::move(*filler));
    }
    KR_CHECK(false);
  }
  uint16_t port() const { return listener_.port; }

 private:
  TestListener listener_;
  std::vector<Socket> fillers_;
};

class ConnectTest : public DescriptorTest {};

TEST_F(ConnectTest, TheFirstThatAnswersIsTaken) {
  TestListener one, other;
  Result<Socket> socket = ConnectToAny(
      {AddressesOf({one.port, other.port}).get()}, Soon(), kStagger);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  EXPECT_EQ(PeerName(*socket), "127.0.0.1:" + std::to_string(one.port));
}

TEST_F(ConnectTest, OneThatRefusesIsPassedOver) {
  ReservedPort nobody;
  TestListener listener;
  const TimePoint began = std::chrono::steady_clock::now();
  Result<Socket> socket = ConnectToAny(
      {AddressesOf({nobody.port, nobody.port, listener.port}).get()}, Soon(),
      std::chrono::seconds(100));
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  EXPECT_EQ(PeerName(*socket), "127.0.0.1:" + std::to_string(listener.port));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST_F(ConnectTest, OneThatSaysNothingLeavesTimeForTheOthers) {
  BlackHole hole;
  TestListener listener;
  const TimePoint began = std::chrono::steady_clock::now();
  Result<Socket> socket = ConnectToAny(
      {AddressesOf({hole.port(), hole.port(), listener.port}).get()}, Soon(),
      kStagger);
  ASSERT_TRUE(socket.ok()) << socket.status().ToString();
  EXPECT_EQ(PeerName(*socket), "127.0.0.1:" + std::to_string(listener.port));
  EXPECT_GE(std::chrono::steady_clock::now() - began, kStagger);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST_F(ConnectTest, SomebodyWhoSaysNothingMayYetAnswer) {
  BlackHole hole;
  ReservedPort nobody;
  const Status status =
      ConnectToAny({AddressesOf({hole.port(), nobody.port}).get()},
                   AfterMs(200), kStagger)
          .status();
  EXPECT_EQ(status, DeadlineExceededError("timed out"));
}

TEST_F(ConnectTest, WhereAllRefuseTheFirstSaysWhy) {
  ReservedPort nobody;
  const Status status =
      ConnectToAny({AddressesOf({nobody.port, nobody.port}).get()}, Soon(),
                   kStagger)
          .status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message().rfind("Connection refused", 0), 0u)
      << status.message();
}

}  // namespace
}  // namespace keras_ring
