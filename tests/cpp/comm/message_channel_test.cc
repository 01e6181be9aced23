#include "csrc/comm/transport/message_channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

using Event = MessageChannel::Event;

constexpr size_t kLimit = 1 << 20;

// The parameter: how long a Poll spins.
class MessageChannelTest : public DescriptorTest,
                           public testing::WithParamInterface<Duration> {
 protected:
  std::unique_ptr<MessageChannel> New(Links peers, Duration spin = GetParam()) {
    auto channel = MessageChannel::Create(std::move(peers), kLimit, counters_,
                                          /*host=*/nullptr, spin);
    KR_CHECK(channel.ok());
    return std::move(channel).value();
  }

  // A channel with one peer, rank 1, whose end is a raw socket.
  std::unique_ptr<MessageChannel> NewWithRawPeer(Socket* peer,
                                                 Duration spin = GetParam()) {
    auto [ours, theirs] = ConnectedPair();
    *peer = std::move(theirs);
    Links peers;
    peers[1] = Link(std::move(ours));
    return New(std::move(peers), spin);
  }

  // Polls until `count` events have come.
  static std::vector<Event> PollFor(MessageChannel& channel, size_t count) {
    const TimePoint until = Soon().at();
    std::vector<Event> all;
    while (all.size() < count && !Deadline(until).expired()) {
      for (Event& event : channel.Poll(&until)) {
        all.push_back(std::move(event));
      }
    }
    return all;
  }

  static void Write(const Socket& socket, const std::string& bytes) {
    ASSERT_TRUE(WriteFull(socket, bytes.data(), bytes.size(), Soon()).ok());
  }

  Counters counters_;
};

TEST_P(MessageChannelTest, MessagesOfAllSizesArriveInOrder) {
  auto links = ConnectedMesh(3);
  // They outlive the threads, or the first to leave would be seen closed.
  std::vector<std::unique_ptr<MessageChannel>> channels;
  for (auto& peers : links) channels.push_back(New(std::move(peers)));
  RunRanks(3, [&](int rank) {
    MessageChannel* channel = channels[rank].get();
    std::vector<size_t> sizes = {0, 1, 127, 128, 16383, 16384, 200000, kLimit};
    for (size_t size : sizes) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        channel->Send(peer, std::string(size, static_cast<char>('a' + rank)));
      }
    }
    std::map<int, std::vector<std::string>> got;
    for (Event& event : PollFor(*channel, 2 * sizes.size())) {
      ASSERT_EQ(event.kind, Event::Kind::kMessage) << event.status.ToString();
      got[event.peer].push_back(std::move(event.message));
    }
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      ASSERT_EQ(got[peer].size(), sizes.size());
      for (size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(got[peer][i],
                  std::string(sizes[i], static_cast<char>('a' + peer)));
      }
    }
    // Leave only when the others have everything.
    const TimePoint until = Soon().at();
    while (!channel->Flushed()) channel->Poll(&until);
  });
}

TEST_P(MessageChannelTest, ManyFramesComeInOnePoll) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += std::string("\x02") + "xy";
  Write(peer, bytes);
  EXPECT_EQ(PollFor(*channel, 1).size(), 100u);
}

TEST_P(MessageChannelTest, AFrameMayComeByteByByte) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  // Length 130 takes two bytes.
  const std::string body(130, 'b');
  const std::string bytes = std::string("\x82\x01") + body;
  TimePoint now = AfterMs(0).at();
  for (char byte : bytes) {
    EXPECT_TRUE(channel->Poll(&now).empty());
    Write(peer, std::string(1, byte));
  }
  auto events = PollFor(*channel, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].message, body);
}

TEST_P(MessageChannelTest, LastMessagesComeBeforeTheClose) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  Write(peer, std::string("\x01"
                          "a\x01"
                          "b"));
  peer.Close();
  auto events = PollFor(*channel, 3);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].message, "a");
  EXPECT_EQ(events[1].message, "b");
  EXPECT_EQ(events[2].kind, Event::Kind::kClosed);
  EXPECT_EQ(events[2].peer, 1);
  EXPECT_EQ(events[2].status,
            UnavailableError(
                "control connection with rank 1: it closed the connection"));
  // Once only; and sending to it does nothing.
  channel->Send(1, "dropped");
  TimePoint soon = AfterMs(20).at();
  EXPECT_TRUE(channel->Poll(&soon).empty());
  EXPECT_TRUE(channel->Flushed());
}

// A send that fails must not hide what the peer said before it left.
// A fork of the process keeps its connections open, too, and with them their
// place in an epoll set.
TEST_P(MessageChannelTest, APeerThatWentIsForgottenThoughAForkHasItOpen) {
  auto [ours, theirs] = ConnectedPair();
  const Socket of_the_fork(dup(ours.fd()));
  ASSERT_TRUE(of_the_fork.valid());
  Links peers;
  peers[1] = Link(std::move(ours));
  auto channel = New(std::move(peers));
  theirs = Socket();
  ASSERT_EQ(PollFor(*channel, 1).size(), 1u);
  for (int i = 0; i < 3; ++i) {
    const TimePoint now = std::chrono::steady_clock::now();
    EXPECT_TRUE(channel->Poll(&now).empty());
  }
}

TEST_P(MessageChannelTest, LastMessagesComeEvenAfterASendFailed) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  Write(peer, std::string("\x04"
                          "last"));
  peer.Close();
  for (int i = 0; i < 50; ++i) channel->Send(1, std::string(1000, 's'));
  auto events = PollFor(*channel, 2);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].message, "last");
  EXPECT_EQ(events[1].kind, Event::Kind::kClosed);
  EXPECT_EQ(events[1].status.code(), StatusCode::kUnavailable);
}

TEST_P(MessageChannelTest, AMessageCutShortIsSaid) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  Write(peer, "\x0ahalf");
  peer.Close();
  auto events = PollFor(*channel, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_NE(events[0].status.message().find("in the middle of a message"),
            std::string::npos);
}

TEST_P(MessageChannelTest, AFrameOverTheLimitClosesOnlyThatPeer) {
  auto [a, raw_a] = ConnectedPair();
  auto [b, raw_b] = ConnectedPair();
  Links peers;
  peers[1] = Link(std::move(a));
  peers[2] = Link(std::move(b));
  auto channel = New(std::move(peers));
  // 2^62 - 1 bytes to come, it says.
  Write(raw_a, std::string(8, '\xff') + "\x3f");
  auto events = PollFor(*channel, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].peer, 1);
  EXPECT_EQ(events[0].status.code(), StatusCode::kInternal);
  Write(raw_b, std::string("\x01z"));
  events = PollFor(*channel, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].peer, 2);
  EXPECT_EQ(events[0].message, "z");
}

TEST_P(MessageChannelTest, AMalformedLengthClosesThePeer) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  Write(peer, std::string(12, '\xff'));
  auto events = PollFor(*channel, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status,
            InternalError("control connection with rank 1: a malformed frame "
                          "length"));
}

// Whatever bytes come, they end in messages and at most one close.
TEST_P(MessageChannelTest, RandomBytes) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Socket peer;
    auto channel = NewWithRawPeer(&peer);
    std::string bytes(1 + random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    Write(peer, bytes);
    peer.Close();
    int closed = 0;
    const TimePoint until = Soon().at();
    while (closed == 0 && !Deadline(until).expired()) {
      for (const Event& event : channel->Poll(&until)) {
        closed += event.kind == Event::Kind::kClosed;
      }
    }
    EXPECT_EQ(closed, 1);
  }
}

// Sends more than the sockets hold, both ways, so that the rest leaves in
// Polls.
TEST_P(MessageChannelTest, SendNeverBlocks) {
  auto links = ConnectedMesh(2);
  auto a = New(std::move(links[0]));
  auto b = New(std::move(links[1]));
  constexpr int kMessages = 40;
  const std::string message(kLimit / 2, 'm');
  for (int i = 0; i < kMessages; ++i) {
    a->Send(1, message);
    b->Send(0, message);
  }
  EXPECT_FALSE(a->Flushed());
  int at_a = 0;
  int at_b = 0;
  const Deadline deadline = Soon();
  while ((at_a < kMessages || at_b < kMessages) && !deadline.expired()) {
    TimePoint now = AfterMs(0).at();
    at_a += static_cast<int>(a->Poll(&now).size());
    at_b += static_cast<int>(b->Poll(&now).size());
  }
  EXPECT_EQ(at_a, kMessages);
  EXPECT_EQ(at_b, kMessages);
  EXPECT_TRUE(a->Flushed());
  EXPECT_TRUE(b->Flushed());
  EXPECT_EQ(counters_.control_messages_sent, 2u * kMessages);
  EXPECT_EQ(counters_.control_bytes_sent, counters_.control_bytes_received);
}

// What Send could not write leaves in Polls, though the peer says nothing.
TEST_P(MessageChannelTest, TheRestLeavesToASilentPeer) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  constexpr int kMessages = 30;
  const std::string message(kLimit, 'm');
  for (int i = 0; i < kMessages; ++i) channel->Send(1, message);
  ASSERT_FALSE(channel->Flushed());
  channel->DetachFromThread();
  RunRanks(2, [&](int side) {
    if (side == 0) {
      const TimePoint until = Soon().at();
      while (!channel->Flushed() && !Deadline(until).expired()) {
        channel->Poll(&until);
      }
      return;
    }
    std::string bytes(kMessages * (kLimit + 3), '\0');
    EXPECT_TRUE(ReadFull(peer, bytes.data(), bytes.size(), Soon()).ok());
  });
  channel->DetachFromThread();
  EXPECT_TRUE(channel->Flushed());
}

TEST_P(MessageChannelTest, PollReturnsWhenItsTimeHasCome) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  const TimePoint begin = std::chrono::steady_clock::now();
  const TimePoint until = begin + std::chrono::milliseconds(30);
  EXPECT_TRUE(channel->Poll(&until).empty());
  EXPECT_GE(std::chrono::steady_clock::now(), until);
}

TEST_P(MessageChannelTest, LastHeardMovesWithEachByte) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  const TimePoint first = channel->LastHeard(1);
  Write(peer, std::string("\x01h"));
  PollFor(*channel, 1);
  const TimePoint second = channel->LastHeard(1);
  EXPECT_GT(second, first);
  peer.Close();
  PollFor(*channel, 1);
  EXPECT_EQ(channel->LastHeard(1), second);
}

TEST_P(MessageChannelTest, AWakeBeforePollIsNotLost) {
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  channel->Wake();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(channel->Poll(nullptr).empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

// Producers hand numbers to a loop as the runtime does. A lost wake-up leaves
// the loop asleep with work on the queue, for ever.
TEST_P(MessageChannelTest, NoWakeIsLost) {
  constexpr int kProducers = 3;
  constexpr int kNumbers = 20000;
  Socket peer;
  auto channel = NewWithRawPeer(&peer);
  Mutex mutex;
  std::vector<int> queue;
  std::atomic<int64_t> taken{0};
  std::atomic<int64_t> given{0};
  RunRanks(kProducers + 1, [&](int thread) {
    if (thread < kProducers) {
      for (int i = 0; i < kNumbers; ++i) {
        {
          MutexLock lock(mutex);
          queue.push_back(i);
        }
        ++given;
        channel->Wake();
        // Let the loop catch up now and then, and so fall asleep.
        while (i % 16 == thread && taken < given) std::this_thread::yield();
      }
      return;
    }
    while (taken < kProducers * kNumbers) {
      std::vector<int> numbers;
      {
        MutexLock lock(mutex);
        numbers.swap(queue);
      }
      taken += static_cast<int64_t>(numbers.size());
      if (numbers.empty()) channel->Poll(nullptr);
    }
  });
  EXPECT_EQ(taken, kProducers * kNumbers);
}

// The ping-pong variant: each side is asleep at nearly every wake.
TEST_P(MessageChannelTest, NoWakeIsLostOneAtATime) {
  constexpr int kTurns = 5000;
  Socket peer_a, peer_b;
  auto a = NewWithRawPeer(&peer_a);
  auto b = NewWithRawPeer(&peer_b);
  std::atomic<int> turn{0};
  RunRanks(2, [&](int side) {
    MessageChannel& own = side == 0 ? *a : *b;
    MessageChannel& other = side == 0 ? *b : *a;
    for (int i = side; i < kTurns; i += 2) {
      while (turn < i) own.Poll(nullptr);
      turn = i + 1;
      other.Wake();
    }
  });
  EXPECT_EQ(turn, kTurns);
}

INSTANTIATE_TEST_SUITE_P(Spin, MessageChannelTest,
                         testing::Values(Duration::zero(),
                                         std::chrono::microseconds(200)),
                         [](const auto& info) {
                           return info.param == Duration::zero() ? "Never"
                                                                 : "Shortly";
                         });

}  // namespace
}  // namespace keras_ring
