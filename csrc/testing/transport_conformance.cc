#include "csrc/testing/transport_conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <utility>

#include "csrc/base/clock.h"
#include "csrc/base/logging.h"
#include "csrc/base/status.h"
#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace transport_conformance {

ManualEvents::ManualEvents() {
  Result<Socket> bell = NewEventFd();
  KR_CHECK(bell.ok());
  bell_ = std::move(bell).value();
}

void ManualEvents::Happen() {
  ++happened_;
  Signal(bell_);
}

bool ManualEvents::Arm() {
  ++times_armed_;
  return !Happened();
}

Status ManualEvents::Check() {
  if (!failed_) return OkStatus();
  return UnavailableError("the events of the test have failed");
}

namespace {

using std::chrono::milliseconds;
using Group = std::vector<std::unique_ptr<Transport>>;

// For tests in which nothing may time out, however loaded the machine.
constexpr milliseconds kPatient{30000};

// The byte at `at` of what `from` sends under `tag`.
uint8_t Pattern(int from, uint64_t tag, size_t at) {
  return static_cast<uint8_t>(from * 31 + tag * 7 + at + (at >> 8) * 3);
}

std::vector<uint8_t> Message(int from, uint64_t tag, size_t bytes) {
  std::vector<uint8_t> message(bytes);
  for (size_t at = 0; at < bytes; ++at) message[at] = Pattern(from, tag, at);
  return message;
}

// Cuts memory into segments of at most `segment` bytes, with an empty one at
// each end.
template <typename Segments>
Segments Cut(uint8_t* data, size_t bytes, size_t segment) {
  Segments segments;
  segments.push_back({data, 0});
  for (size_t at = 0; at < bytes; at += segment) {
    segments.push_back({data + at, std::min(segment, bytes - at)});
  }
  segments.push_back({data + bytes, 0});
  return segments;
}

}  // namespace

SendReceivePlan Whole(uint64_t tag, int to, std::vector<uint8_t>& out, int from,
                      std::vector<uint8_t>& in, size_t segment) {
  SendReceivePlan plan;
  plan.tag = tag;
  if (to >= 0) {
    plan.outgoing.push_back(
        {to, Cut<std::vector<ConstSegment>>(out.data(), out.size(), segment)});
    plan.outgoing[0].released = plan.outgoing[0].segments.size();
  }
  if (from >= 0) {
    plan.incoming.push_back(
        {from, Cut<std::vector<Segment>>(in.data(), in.size(), segment)});
    plan.incoming[0].allowed = plan.incoming[0].segments.size();
  }
  return plan;
}

namespace {

int Next(int rank, int size) { return (rank + 1) % size; }
int Previous(int rank, int size) { return (rank + size - 1) % size; }

// Each rank sends to the next and receives from the previous, at once.
void RingExchange(Group& group, size_t bytes, size_t segment) {
  const int size = static_cast<int>(group.size());
  RunRanks(size, [&](int rank) {
    for (uint64_t tag = 1; tag <= 3; ++tag) {
      const int from = Previous(rank, size);
      std::vector<uint8_t> out = Message(rank, tag, bytes);
      std::vector<uint8_t> in(bytes, 0xee);
      SendReceivePlan duplex =
          Whole(tag, Next(rank, size), out, from, in, segment);
      Status status = group[rank]->Run(duplex);
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(in, Message(from, tag, bytes)) << "rank " << rank;
    }
  });
}

void RingOfOddSizes(const TransportFactory& factory, int size) {
  Group group = factory(size, kPatient);
  const size_t n = static_cast<size_t>(size);
  for (size_t bytes : {size_t{0}, size_t{1}, n - 1, n, n + 1, size_t{1000},
                       size_t{65537}, size_t{1000003}}) {
    for (size_t segment : {size_t{7919}, size_t{1} << 30}) {
      SCOPED_TRACE(testing::Message() << bytes << " bytes by " << segment);
      RingExchange(group, bytes, segment);
    }
  }
}

// Many small segments: more than any implementation hands over in one call.
void ManySegments(const TransportFactory& factory, int size) {
  Group group = factory(size, kPatient);
  RingExchange(group, 3001, 3);
}

// A chain: rank 0 only sends, the last only receives, the others forward each
// segment when it has arrived and not before.
void Chain(const TransportFactory& factory, int size) {
  Group group = factory(size, kPatient);
  constexpr size_t kBytes = 300007;
  RunRanks(size, [&](int rank) {
    std::vector<uint8_t> memory(kBytes);
    if (rank == 0) memory = Message(0, 9, kBytes);
    const int to = rank + 1 < size ? rank + 1 : -1;
    SendReceivePlan duplex = Whole(9, to, memory, rank - 1, memory, 4096);
    if (rank > 0 && to >= 0) {
      duplex.advance = [](SendReceivePlan& plan) {
        plan.outgoing[0].released = plan.incoming[0].received;
      };
    }
    Status status = group[rank]->Run(duplex);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(memory, Message(0, 9, kBytes)) << "rank " << rank;
  });
}

// advance comes with what was received complete and what is not allowed
// untouched: all segments share two pieces of scratch memory here.
void SharedScratch(const TransportFactory& factory, int size) {
  Group group = factory(size, kPatient);
  constexpr size_t kSegment = 1500;
  constexpr size_t kSegments = 200;
  RunRanks(size, [&](int rank) {
    const int from = Previous(rank, size);
    std::vector<uint8_t> out = Message(rank, 5, kSegment * kSegments);
    const std::vector<uint8_t> expected =
        Message(from, 5, kSegment * kSegments);
    std::vector<uint8_t> scratch(2 * kSegment);
    SendReceivePlan duplex;
    duplex.tag = 5;
    Outgoing outgoing{Next(rank, size), {}};
    Incoming incoming{from, {}};
    for (size_t i = 0; i < kSegments; ++i) {
      outgoing.segments.push_back({out.data() + i * kSegment, kSegment});
      incoming.segments.push_back(
          {scratch.data() + (i % 2) * kSegment, kSegment});
    }
    duplex.outgoing.push_back(outgoing);
    duplex.incoming.push_back(incoming);
    size_t used = 0;
    bool all_right = true;
    duplex.advance = [&](SendReceivePlan& plan) {
      const size_t received = plan.incoming[0].received;
      all_right = all_right && received <= used + 2;
      for (; used < received; ++used) {
        const auto at = scratch.begin() + (used % 2) * kSegment;
        all_right = all_right && std::equal(at, at + kSegment,
                                            expected.begin() + used * kSegment);
      }
      plan.incoming[0].allowed = used + 2;
      plan.outgoing[0].released = used + 1;
    };
    Status status = group[rank]->Run(duplex);
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(all_right) << "rank " << rank;
    EXPECT_EQ(used, kSegments);
  });
}

// Everybody sends to everybody at once: more than fits on the way, other
// lengths each, and what is sent to one peer waits for what came from another.
void AllToAll(const TransportFactory& factory, int size) {
  Group group = factory(size, kPatient);
  constexpr size_t kSegment = 3000;
  const auto segments = [](int from, int to) -> size_t {
    return 40 + 7 * from + 3 * to;
  };
  RunRanks(size, [&](int rank) {
    std::vector<std::vector<uint8_t>> out(size), in(size);
    SendReceivePlan plan;
    plan.tag = 11;
    for (int k = 1; k < size; ++k) {
      const int peer = (rank + k) % size;
      out[peer] = Message(rank, peer, segments(rank, peer) * kSegment);
      in[peer].resize(segments(peer, rank) * kSegment);
      Outgoing outgoing{peer, {}};
      for (size_t i = 0; i < segments(rank, peer); ++i) {
        outgoing.segments.push_back(
            {out[peer].data() + i * kSegment, kSegment});
      }
      Incoming incoming{peer, {}};
      for (size_t i = 0; i < segments(peer, rank); ++i) {
        incoming.segments.push_back({in[peer].data() + i * kSegment, kSegment});
      }
      plan.outgoing.push_back(outgoing);
      plan.incoming.push_back(incoming);
    }
    plan.advance = [](SendReceivePlan& p) {
      // Of those that have more to come.
      size_t least = 1000;
      for (const Incoming& incoming : p.incoming) {
        if (incoming.received == incoming.segments.size()) continue;
        least = std::min(least, incoming.received);
      }
      for (Outgoing& outgoing : p.outgoing) outgoing.released = least + 2;
      for (Incoming& incoming : p.incoming) incoming.allowed = least + 4;
    };
    const Status status = group[rank]->Run(plan);
    EXPECT_TRUE(status.ok()) << status.ToString();
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      EXPECT_EQ(in[peer], Message(peer, rank, in[peer].size()))
          << "rank " << rank << " from " << peer;
    }
    for (const Outgoing& outgoing : plan.outgoing) {
      EXPECT_EQ(outgoing.sent, outgoing.segments.size());
    }
  });
}

// Nothing to send and nothing to receive, with peers and without.
void NothingToDo(const TransportFactory& factory, int size) {
  Group group = factory(size, kPatient);
  RunRanks(size, [&](int rank) {
    SendReceivePlan alone;
    Status status = group[rank]->Run(alone);
    EXPECT_TRUE(status.ok()) << status.ToString();
    if (size == 1) return;
    SendReceivePlan empty;
    empty.tag = 3;
    empty.outgoing.push_back({Next(rank, size), {}});
    empty.incoming.push_back({Previous(rank, size), {}});
    status = group[rank]->Run(empty);
    EXPECT_TRUE(status.ok()) << status.ToString();
  });
}

void TagMismatch(const TransportFactory& factory) {
  Group group = factory(2, kPatient);
  RunRanks(2, [&](int rank) {
    std::vector<uint8_t> out(100), in(100);
    SendReceivePlan duplex = Whole(40 + rank, 1 - rank, out, 1 - rank, in, 100);
    Status status = group[rank]->Run(duplex);
    EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
    const std::string peer = "rank " + std::to_string(1 - rank);
    EXPECT_NE(status.message().find(peer), std::string::npos)
        << status.ToString();
    for (const char* tag : {"40", "41"}) {
      EXPECT_NE(status.message().find(tag), std::string::npos)
          << status.ToString();
    }
    // Broken for good.
    SendReceivePlan again;
    EXPECT_EQ(group[rank]->Run(again), status);
  });
}

// Rank 1 goes away while rank 0 receives from it.
void PeerLossReceiving(const TransportFactory& factory) {
  Group group = factory(2, kPatient);
  RunRanks(2, [&](int rank) {
    std::vector<uint8_t> half = Message(1, 2, 5000);
    if (rank == 1) {
      SendReceivePlan duplex = Whole(2, 0, half, -1, half, 5000);
      EXPECT_TRUE(group[1]->Run(duplex).ok());
      group[1].reset();
      return;
    }
    std::vector<uint8_t> in(5000);
    SendReceivePlan first = Whole(2, -1, in, 1, in, 5000);
    Status status = group[0]->Run(first);
    // What was sent before the loss still arrives.
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(in, half);
    SendReceivePlan second = Whole(3, -1, in, 1, in, 5000);
    status = group[0]->Run(second);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos);
    EXPECT_EQ(group[0]->Run(second), status);
  });
}

// Rank 1 goes away while rank 0 sends more than fits on the way.
void PeerLossSending(const TransportFactory& factory) {
  Group group = factory(2, kPatient);
  std::atomic<bool> sending{false};
  RunRanks(2, [&](int rank) {
    if (rank == 1) {
      std::vector<uint8_t> in(1000);
      SendReceivePlan some = Whole(1, -1, in, 0, in, 1000);
      EXPECT_TRUE(group[1]->Run(some).ok());
      while (!sending) std::this_thread::yield();
      group[1].reset();
      return;
    }
    std::vector<uint8_t> out(1000);
    SendReceivePlan some = Whole(1, 1, out, -1, out, 1000);
    EXPECT_TRUE(group[0]->Run(some).ok());
    out.resize(64 << 20);
    SendReceivePlan more = Whole(2, 1, out, -1, out, 1 << 20);
    sending = true;
    Status status = group[0]->Run(more);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos);
  });
}

// Abort, from another thread, of a Run that waits for a peer that never comes.
void AbortWhileWaiting(const TransportFactory& factory) {
  Group group = factory(2, kPatient);
  const Status cause = CancelledError("the job was told to stop");
  std::atomic<bool> running{false};
  std::thread aborter([&] {
    while (!running) std::this_thread::yield();
    group[0]->Abort(cause);
    group[0]->Abort(InternalError("a later cause is not kept"));
  });
  std::vector<uint8_t> in(10);
  SendReceivePlan duplex = Whole(1, -1, in, 1, in, 10);
  running = true;
  EXPECT_EQ(group[0]->Run(duplex), cause);
  aborter.join();
  SendReceivePlan later;
  later.tag = 2;
  EXPECT_EQ(group[0]->Run(later), cause);
}

void AbortBeforeRun(const TransportFactory& factory) {
  Group group = factory(2, kPatient);
  const Status cause = UnavailableError("rank 1 was killed");
  group[0]->Abort(cause);
  std::vector<uint8_t> in(10);
  SendReceivePlan duplex = Whole(1, 1, in, 1, in, 10);
  EXPECT_EQ(group[0]->Run(duplex), cause);
}

// A peer that is alive and silent.
void IdleLimit(const TransportFactory& factory) {
  Group group = factory(2, milliseconds(50));
  std::vector<uint8_t> in(10);
  SendReceivePlan duplex = Whole(1, -1, in, 1, in, 10);
  const auto begin = std::chrono::steady_clock::now();
  Status status = group[0]->Run(duplex);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("rank 1"), std::string::npos);
  EXPECT_GE(took, milliseconds(50));
  EXPECT_LT(took, milliseconds(10000));
}

// A peer that is slow, but never silent for the limit, is waited for: one
// Run of 600 ms under a limit of 300 ms. Returns whether the peer was as slow
// as that, and not held up by a busy machine for so long that it was silent.
bool SlowIsNotIdle(const TransportFactory& factory, bool is_last) {
  constexpr milliseconds kLimit(300), kPause(50);
  Group group = factory(2, kLimit);
  constexpr size_t kSegments = 10;
  std::atomic<bool> was_silent{false};
  std::array<Status, 2> ends;
  TimePoint released = std::chrono::steady_clock::now();
  RunRanks(2, [&](int rank) {
    std::vector<uint8_t> out(kSegments), in(kSegments);
    SendReceivePlan duplex = Whole(1, 1 - rank, out, 1 - rank, in, 1);
    if (rank == 1) {
      // One after the other, with a pause before each.
      duplex.advance = [&](SendReceivePlan& plan) {
        Outgoing& outgoing = plan.outgoing[0];
        if (outgoing.released > outgoing.sent) return;
        const TimePoint until = std::chrono::steady_clock::now() + kPause;
        while (std::chrono::steady_clock::now() < until) {
          std::this_thread::yield();
        }
        const TimePoint now = std::chrono::steady_clock::now();
        if (now - released > kLimit / 2) was_silent = true;
        released = now;
        ++outgoing.released;
      };
      duplex.outgoing[0].released = 0;
    }
    ends[rank] = group[rank]->Run(duplex);
  });
  if (was_silent && !is_last) return false;
  for (const Status& end : ends) EXPECT_TRUE(end.ok()) << end.ToString();
  return true;
}

// A plan of `events` alone, until so many have happened.
SendReceivePlan UntilHappened(ManualEvents& events, int count) {
  SendReceivePlan plan;
  plan.events = &events;
  plan.busy = true;
  plan.advance = [&events, count](SendReceivePlan& p) {
    p.busy = events.Look() < count;
  };
  return plan;
}

void EventsAreWaitedFor(const TransportFactory& factory) {
  constexpr int kCount = 100;
  Group group = factory(2, kPatient);
  // Either wakes the other.
  ManualEvents events[2];
  RunRanks(2, [&](int rank) {
    for (int i = 1; i <= kCount; ++i) {
      if (rank == 0) events[1].Happen();
      SendReceivePlan plan = UntilHappened(events[rank], i);
      const Status status = group[rank]->Run(plan);
      ASSERT_TRUE(status.ok()) << status.ToString();
      if (rank == 1) events[0].Happen();
    }
  });
}

void EventsThatFailEndTheRun(const TransportFactory& factory) {
  Group group = factory(2, kPatient);
  ManualEvents events;
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(20));
    events.Fail();
  });
  std::vector<uint8_t> in(10);
  SendReceivePlan plan = Whole(1, -1, in, 1, in, 10);
  plan.events = &events;
  const Status status = group[0]->Run(plan);
  other.join();
  EXPECT_EQ(status, events.Check()) << status.ToString();
}

}  // namespace
}  // namespace transport_conformance

void RunTransportConformance(const TransportFactory& factory,
                             const TransportTraits& traits) {
  using namespace transport_conformance;
  for (int size : {1, 2, 3, 4, 7}) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    NothingToDo(factory, size);
    if (size == 1) continue;
    RingOfOddSizes(factory, size);
    ManySegments(factory, size);
    Chain(factory, size);
    SharedScratch(factory, size);
    AllToAll(factory, size);
  }
  TagMismatch(factory);
  if (traits.sees_lost_peers) {
    PeerLossReceiving(factory);
    PeerLossSending(factory);
  }
  AbortWhileWaiting(factory);
  AbortBeforeRun(factory);
  IdleLimit(factory);
  constexpr int kTrials = 5;
  int trial = 1;
  while (!SlowIsNotIdle(factory, trial == kTrials)) ++trial;
  EventsAreWaitedFor(factory);
  EventsThatFailEndTheRun(factory);
}

}  // namespace keras_ring
