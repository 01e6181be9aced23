#include "csrc/comm/transport/plan_streams.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "csrc/comm/net/link.h"
#include "csrc/comm/transport/data_header.h"

namespace keras_ring {
namespace {

constexpr size_t kQuantum = 40;

class PlanStreamsTest : public testing::Test {
 protected:
  // Two ends of a connection. SOCK_SEQPACKET: a read gives what was sent at
  // once.
  void Open(int type) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
              0);
    link_ = Link(Socket(fds[0]));
    peer_ = Socket(fds[1]);
  }

  // The sizes of the sends of segments, all of which are released.
  std::vector<size_t> Sends(const std::vector<size_t>& segments) {
    Open(SOCK_SEQPACKET);
    std::string expected;
    std::vector<std::string> data;
    for (const size_t bytes : segments) {
      data.emplace_back(bytes, static_cast<char>('a' + data.size()));
      expected += data.back();
    }
    Outgoing outgoing;
    outgoing.peer = 1;
    for (const std::string& one : data) {
      outgoing.segments.push_back({one.data(), one.size()});
    }
    outgoing.released = segments.size();
    SendStream stream(7, outgoing, link_, kQuantum, ranks_);
    std::vector<size_t> sizes;
    std::string got;
    while (!stream.done()) {
      const Result<Moved> moved = stream.Advance();
      EXPECT_TRUE(moved.ok() && !moved->blocked);
      char bytes[1000];
      const ssize_t size = recv(peer_.fd(), bytes, sizeof(bytes), 0);
      if (size <= 0) break;
      EXPECT_EQ(moved->bytes, static_cast<size_t>(size));
      sizes.push_back(size);
      got.append(bytes, size);
    }
    EXPECT_EQ(got.substr(kDataHeaderBytes), expected);
    return sizes;
  }

  Link link_;
  Socket peer_;
  RankSet ranks_;
};

using Sizes = std::vector<size_t>;

TEST_F(PlanStreamsTest, ARestLeavesBeforeTheLastQuantum) {
  ASSERT_EQ(kDataHeaderBytes, 16u);
  EXPECT_EQ(Sends({}), Sizes({16}));
  EXPECT_EQ(Sends({24}), Sizes({40}));
  EXPECT_EQ(Sends({25}), Sizes({1, 40}));
  EXPECT_EQ(Sends({64}), Sizes({40, 40}));
  EXPECT_EQ(Sends({65}), Sizes({40, 1, 40}));
  // Whatever the segments.
  EXPECT_EQ(Sends({1, 0, 9, 20, 0, 34, 1}), Sizes({40, 1, 40}));
  EXPECT_EQ(Sends({30, 30, 30, 24}), Sizes({40, 40, 10, 40}));
}

// What else would a call be for that says so?
TEST_F(PlanStreamsTest, WhoReceivesLessThanThereIsRoomForIsBlocked) {
  Open(SOCK_STREAM);
  uint8_t header[kDataHeaderBytes];
  EncodeDataHeader({7, 20}, header);
  std::vector<char> in(20);
  Incoming incoming{1, {{in.data(), in.size()}}, /*allowed=*/1};
  ReceiveStream stream(7, incoming, link_, ranks_);
  EXPECT_EQ(stream.left(), 36u);
  ASSERT_EQ(send(peer_.fd(), header, 10, 0), 10);
  Result<Moved> moved = stream.Advance();
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->bytes, 10u);
  EXPECT_TRUE(moved->blocked);
  EXPECT_EQ(stream.left(), 26u);
  ASSERT_EQ(send(peer_.fd(), header + 10, 6, 0), 6);
  ASSERT_EQ(send(peer_.fd(), in.data(), in.size(), 0), 20);
  moved = stream.Advance();
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->bytes, 26u);
  EXPECT_FALSE(moved->blocked);
  EXPECT_EQ(stream.left(), 0u);
  EXPECT_TRUE(stream.done());
}

TEST_F(PlanStreamsTest, WhoSendsLessThanThereIsIsBlocked) {
  Open(SOCK_STREAM);
  const std::vector<char> out(size_t{64} << 20);
  Outgoing outgoing{1, {{out.data(), out.size()}}, /*released=*/1};
  SendStream stream(7, outgoing, link_, out.size(), ranks_);
  // The first one is the rest, of 16 bytes.
  Result<Moved> moved = stream.Advance();
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->bytes, 16u);
  EXPECT_FALSE(moved->blocked);
  moved = stream.Advance();
  ASSERT_TRUE(moved.ok());
  EXPECT_GT(moved->bytes, 0u);
  EXPECT_LT(moved->bytes, out.size());
  EXPECT_TRUE(moved->blocked);
  moved = stream.Advance();
  ASSERT_TRUE(moved.ok());
  EXPECT_EQ(moved->bytes, 0u);
  EXPECT_TRUE(moved->blocked);
}

}  // namespace
}  // namespace keras_ring
