// MessageChannel among ranks that share memory.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/comm/transport/local_link.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/testing/local_host_group.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {
namespace {

using Event = MessageChannel::Event;

constexpr size_t kLimit = 8 << 20;
constexpr size_t kRing = ShmStream::kCapacity;

// A moment of random length, now and then long enough for others to fall
// asleep.
void Dawdle(std::mt19937& random) {
  const uint32_t kind = random() % 64;
  if (kind == 0) {
    Pause(std::chrono::microseconds(random() % 500), Soon());
  } else if (kind < 16) {
    std::this_thread::yield();
  }
}

// Parameter: how many microseconds a channel spins before it sleeps.
class MessageChannelLocalTest : public testing::TestWithParam<int> {
 protected:
  // Channels of `size` ranks, each connected with all others. Their groups are
  // in groups_; what they do is counted in counters_.
  std::vector<std::unique_ptr<MessageChannel>> New(int size) {
    HostGroupLayout layout;
    layout.control_bytes = (ControlPage::BytesFor(size) + 63) / 64 * 64;
    layout.data_bytes = 64;
    groups_ = CreateLocalHostGroups(size, layout);
    std::vector<Links> links = ConnectedMesh(size);
    std::vector<std::unique_ptr<MessageChannel>> channels;
    for (int rank = 0; rank < size; ++rank) {
      auto channel = MessageChannel::Create(
          std::move(links[rank]), kLimit, counters_, groups_[rank].get(),
          std::chrono::microseconds(GetParam()));
      KR_CHECK(channel.ok());
      channels.push_back(std::move(channel).value());
    }
    return channels;
  }

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

  ShmStream& StreamOf(int from, int to) {
    return ControlPage::Of(*groups_[from], from).to[to];
  }

  Counters counters_;
  std::vector<std::unique_ptr<HostGroup>> groups_;
};

INSTANTIATE_TEST_SUITE_P(Spin, MessageChannelLocalTest,
                         testing::Values(0, 100));

// All ranks to all others at once, messages of many rings' length among them.
TEST_P(MessageChannelLocalTest, MessagesOfAllSizesArriveInOrder) {
  auto channels = New(3);
  const std::vector<size_t> sizes = {0,     1,         127,     128,
                                     16383, kRing - 4, kRing,   kRing + 1,
                                     0,     200 << 10, 5 << 20, 3};
  std::atomic<int> done{0};
  RunRanks(3, [&](int rank) {
    MessageChannel& channel = *channels[rank];
    for (size_t size : sizes) {
      for (int peer = 0; peer < 3; ++peer) {
        if (peer == rank) continue;
        channel.Send(peer, std::string(size, static_cast<char>('a' + rank)));
      }
    }
    std::map<int, std::vector<std::string>> got;
    for (Event& event : PollFor(channel, 2 * sizes.size())) {
      ASSERT_EQ(event.kind, Event::Kind::kMessage) << event.status.ToString();
      got[event.peer].push_back(std::move(event.message));
    }
    for (int peer = 0; peer < 3; ++peer) {
      if (peer == rank) continue;
      ASSERT_EQ(got[peer].size(), sizes.size());
      for (size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_TRUE(got[peer][i] ==
                    std::string(sizes[i], static_cast<char>('a' + peer)))
            << "message " << i << " of rank " << peer;
      }
    }
    // The others may still be waiting for this one's rest.
    const TimePoint until = Soon().at();
    while (!channel.Flushed()) channel.Poll(&until);
    if (++done == 3) {
      for (auto& other : channels) other->Wake();
    }
    while (done < 3) channel.Poll(&until);
  });
  EXPECT_EQ(counters_.control_messages_sent, 6 * sizes.size());
  EXPECT_EQ(counters_.control_bytes_sent, counters_.control_bytes_received);
}

// One thread sends more than the rings hold, both ways.
TEST_P(MessageChannelLocalTest, SendNeverBlocks) {
  auto channels = New(2);
  constexpr int kMessages = 5;
  const std::string message(1 << 20, 'm');
  for (int i = 0; i < kMessages; ++i) {
    channels[0]->Send(1, message);
    channels[1]->Send(0, message);
  }
  EXPECT_FALSE(channels[0]->Flushed());
  int got[2] = {0, 0};
  const Deadline deadline = Soon();
  while ((got[0] < kMessages || got[1] < kMessages) && !deadline.expired()) {
    for (int rank : {0, 1}) {
      TimePoint now = AfterMs(0).at();
      got[rank] += static_cast<int>(channels[rank]->Poll(&now).size());
    }
  }
  EXPECT_EQ(got[0], kMessages);
  EXPECT_EQ(got[1], kMessages);
  EXPECT_TRUE(channels[0]->Flushed());
  EXPECT_TRUE(channels[1]->Flushed());
}

// A sleeping sender hears when there is room again, though the peer says
// nothing.
TEST_P(MessageChannelLocalTest, TheRestLeavesToASilentPeer) {
  auto channels = New(2);
  RunRanks(2, [&](int rank) {
    if (rank == 0) {
      channels[0]->Send(1, std::string(5 << 20, 'm'));
      EXPECT_FALSE(channels[0]->Flushed());
      while (!channels[0]->Flushed()) channels[0]->Poll(nullptr);
      return;
    }
    std::mt19937 random(1);
    Pause(std::chrono::milliseconds(20), Soon());
    std::vector<Event> events;
    while (events.empty()) {
      events = channels[1]->Poll(nullptr);
      Dawdle(random);
    }
    EXPECT_EQ(events[0].message.size(), size_t{5} << 20);
  });
}

TEST_P(MessageChannelLocalTest, LastMessagesComeBeforeTheClose) {
  auto channels = New(3);
  const std::string last(kRing / 2, 'z');
  channels[1]->Send(0, "a");
  channels[1]->Send(0, last);
  channels[1].reset();
  auto events = PollFor(*channels[0], 3);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].message, "a");
  EXPECT_EQ(events[1].message, last);
  EXPECT_EQ(events[2].kind, Event::Kind::kClosed);
  EXPECT_EQ(events[2].peer, 1);
  EXPECT_EQ(events[2].status,
            UnavailableError(
                "control connection with rank 1: it closed the connection"));
  // Once only; sending to it does nothing, and the others go on.
  channels[0]->Send(1, "dropped");
  TimePoint soon = AfterMs(20).at();
  EXPECT_TRUE(channels[0]->Poll(&soon).empty());
  EXPECT_TRUE(channels[0]->Flushed());
  channels[2]->Send(0, "still here");
  events = PollFor(*channels[0], 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].message, "still here");
}

// What a peer still owed is no message, and what is still owed to it is no
// reason to wait.
TEST_P(MessageChannelLocalTest, AMessageCutShortIsNone) {
  auto channels = New(2);
  channels[0]->Send(1, std::string(200 << 10, 'm'));
  channels[1]->Send(0, std::string(200 << 10, 'm'));
  channels[1].reset();
  auto events = PollFor(*channels[0], 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kClosed);
  EXPECT_EQ(events[0].status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(channels[0]->Flushed());
}

// Fault: a peer goes at any moment while it sends. Whole messages in order,
// then one close.
TEST_P(MessageChannelLocalTest, APeerMayGoAtAnyMoment) {
  for (int round = 0; round < 50; ++round) {
    auto channels = New(2);
    std::atomic<int> sent{0};
    RunRanks(2, [&](int rank) {
      std::mt19937 random(round);
      if (rank == 1) {
        const int count = static_cast<int>(random() % 100);
        for (int i = 0; i < count; ++i) {
          channels[1]->Send(0, std::to_string(i));
          Dawdle(random);
        }
        sent = count;
        channels[1].reset();
        return;
      }
      int got = 0;
      bool closed = false;
      const TimePoint until = Soon().at();
      while (!closed && !Deadline(until).expired()) {
        for (const Event& event : channels[0]->Poll(&until)) {
          ASSERT_FALSE(closed);
          closed = event.kind == Event::Kind::kClosed;
          if (closed) continue;
          ASSERT_EQ(event.message, std::to_string(got++));
        }
      }
      EXPECT_TRUE(closed);
      EXPECT_EQ(got, sent);
    });
  }
}

TEST_P(MessageChannelLocalTest, ABrokenStreamClosesOnlyThatPeer) {
  auto channels = New(4);
  StreamOf(1, 0).written = kRing + 1;
  StreamOf(2, 0).Write(std::string(8, '\xff') + "\x3f");  // 2^62 - 1 bytes
  channels[3]->Send(0, "well");
  std::map<int, Event> of;
  for (Event& event : PollFor(*channels[0], 3)) of[event.peer] = event;
  ASSERT_EQ(of.size(), 3u);
  EXPECT_EQ(of[1].status,
            InternalError("control connection with rank 1: a broken stream"));
  EXPECT_EQ(of[2].kind, Event::Kind::kClosed);
  EXPECT_EQ(of[2].status.code(), StatusCode::kInternal);
  EXPECT_EQ(of[3].message, "well");
}

TEST_P(MessageChannelLocalTest, BytesOnTheSocketOfALocalPeerAreAnError) {
  HostGroupLayout layout;
  layout.control_bytes = (ControlPage::BytesFor(2) + 63) / 64 * 64;
  layout.data_bytes = 64;
  groups_ = CreateLocalHostGroups(2, layout);
  auto [ours, theirs] = ConnectedPair();
  Links peers;
  peers[1] = Link(std::move(ours));
  auto channel = MessageChannel::Create(std::move(peers), kLimit, counters_,
                                        groups_[0].get(),
                                        std::chrono::microseconds(GetParam()));
  ASSERT_TRUE(channel.ok());
  ASSERT_TRUE(WriteFull(theirs, "\x01x", 2, Soon()).ok());
  auto events = PollFor(**channel, 1);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status,
            InternalError("control connection with rank 1: unexpected bytes"));
}

// A leader speaks to its host through memory and to other hosts by TCP.
TEST_P(MessageChannelLocalTest, LocalAndRemotePeersOfOneChannel) {
  HostGroupLayout layout;
  layout.control_bytes = (ControlPage::BytesFor(2) + 63) / 64 * 64;
  layout.data_bytes = 64;
  groups_ = CreateLocalHostGroups(2, layout);
  auto links = ConnectedMesh(3);
  std::vector<std::unique_ptr<MessageChannel>> channels;
  for (int rank = 0; rank < 3; ++rank) {
    auto channel =
        MessageChannel::Create(std::move(links[rank]), kLimit, counters_,
                               rank < 2 ? groups_[rank].get() : nullptr,
                               std::chrono::microseconds(GetParam()));
    ASSERT_TRUE(channel.ok());
    channels.push_back(std::move(channel).value());
  }
  RunRanks(3, [&](int rank) {
    // A token goes round: each rank is asleep when it comes.
    std::mt19937 random(rank);
    const int next = (rank + 1) % 3;
    if (rank == 0) channels[0]->Send(1, std::string(1000, 't'));
    for (int turn = 0; turn < 300; ++turn) {
      auto events = PollFor(*channels[rank], 1);
      ASSERT_EQ(events.size(), 1u);
      ASSERT_EQ(events[0].peer, (rank + 2) % 3);
      ASSERT_EQ(events[0].message.size(), 1000u);
      Dawdle(random);
      if (rank != 0 || turn < 299) {
        channels[rank]->Send(next, events[0].message);
      }
    }
  });
}

TEST_P(MessageChannelLocalTest, PollReturnsWhenItsTimeHasCome) {
  auto channels = New(2);
  const TimePoint until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(30);
  EXPECT_TRUE(channels[0]->Poll(&until).empty());
  EXPECT_GE(std::chrono::steady_clock::now(), until);
}

TEST_P(MessageChannelLocalTest, LastHeardMovesWithEachMessage) {
  auto channels = New(2);
  const TimePoint first = channels[0]->LastHeard(1);
  channels[1]->Send(0, "h");
  ASSERT_EQ(PollFor(*channels[0], 1).size(), 1u);
  EXPECT_GT(channels[0]->LastHeard(1), first);
}

// The bell says nothing of sockets: they must be looked at even if it has
// always been rung.
TEST_P(MessageChannelLocalTest, ALostPeerIsSeenAmongManyWakes) {
  auto channels = New(3);
  channels[2].reset();
  std::vector<Event> events;
  const Deadline deadline = Soon();
  while (events.empty() && !deadline.expired()) {
    channels[0]->Wake();
    events = channels[0]->Poll(nullptr);
  }
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Event::Kind::kClosed);
  EXPECT_EQ(events[0].peer, 2);
}

// Work comes from threads of the own rank (a queue and Wake) and from both
// other ranks (messages), with delays at random, so that the loop is met awake,
// falling asleep and asleep. A ring that is lost leaves it asleep for ever:
// everybody waits for its work to be done before giving more.
TEST_P(MessageChannelLocalTest, NoRingIsLost) {
  constexpr int kRounds = 3000;
  auto channels = New(3);
  Mutex mutex;
  std::vector<int> queue;
  std::atomic<int> taken[4] = {};
  RunRanks(5, [&](int thread) {
    std::mt19937 random(thread);
    if (thread < 4) {
      for (int i = 0; i < kRounds; ++i) {
        Dawdle(random);
        if (thread < 2) {
          {
            MutexLock lock(mutex);
            queue.push_back(thread);
          }
          channels[0]->Wake();
        } else {
          channels[thread - 1]->Send(0, "x");
        }
        while (i % 4 == 0 && taken[thread] <= i) std::this_thread::yield();
      }
      return;
    }
    int total = 0;
    while (total < 4 * kRounds) {
      for (const Event& event : channels[0]->Poll(nullptr)) {
        ASSERT_EQ(event.kind, Event::Kind::kMessage);
        ++taken[event.peer + 1];
        ++total;
      }
      std::vector<int> work;
      {
        MutexLock lock(mutex);
        work.swap(queue);
      }
      for (int of : work) ++taken[of];
      total += static_cast<int>(work.size());
      Dawdle(random);
    }
  });
}

// Every rank is a loop: a token goes to a random other rank each time.
TEST_P(MessageChannelLocalTest, NoTokenIsLost) {
  constexpr int kTokens = 2;
  constexpr int kHops = 3000;
  auto channels = New(3);
  std::atomic<int> ended{0};
  RunRanks(3, [&](int rank) {
    std::mt19937 random(rank);
    MessageChannel& own = *channels[rank];
    if (rank == 0) {
      for (int i = 0; i < kTokens; ++i) own.Send(1, std::to_string(kHops));
    }
    while (ended < kTokens) {
      for (const Event& event : own.Poll(nullptr)) {
        const int left = std::stoi(event.message) - 1;
        Dawdle(random);
        if (left > 0) {
          own.Send((rank + 1 + static_cast<int>(random() % 2)) % 3,
                   std::to_string(left));
        } else if (++ended == kTokens) {
          for (auto& channel : channels) channel->Wake();
        }
      }
    }
  });
}

}  // namespace
}  // namespace keras_ring
