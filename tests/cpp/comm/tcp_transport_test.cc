#include "csrc/comm/transport/tcp_transport.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "csrc/comm/transport/data_header.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/transport_conformance.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/tcp_group.h"

namespace keras_ring {
namespace {

using transport_conformance::ManualEvents;
using transport_conformance::Whole;

// Of processors, by this thread.
Duration ThreadTime() {
  timespec time = {};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::nanoseconds(time.tv_nsec);
}

class TcpTransportTest : public DescriptorTest {
 protected:
  std::vector<std::unique_ptr<Transport>> NewGroup(
      int size, std::chrono::milliseconds idle_limit) {
    return NewTcpGroup(ConnectedMesh(size), idle_limit, counters_);
  }

  // Rank 0 of two; the peer's end of its socket is the test's.
  std::unique_ptr<Transport> NewWithRawPeer(Socket* peer) {
    auto [ours, theirs] = ConnectedPair();
    *peer = std::move(theirs);
    Links links;
    links[1] = Link(std::move(ours));
    auto transport = TcpTransport::Create(
        {0, 2, std::make_shared<IdleLimit>(std::chrono::seconds(30)),
         std::chrono::seconds(30), counters_},
        std::move(links));
    KR_CHECK(transport.ok());
    return std::move(transport).value();
  }

  Counters counters_;
};

TEST_F(TcpTransportTest, Conformance) {
  RunTransportConformance(
      [this](int size, std::chrono::milliseconds idle_limit) {
        return NewGroup(size, idle_limit);
      });
}

TEST_F(TcpTransportTest, ConformanceOfOneThatSpins) {
  RunTransportConformance(
      [this](int size, std::chrono::milliseconds idle_limit) {
        return NewTcpGroup(ConnectedMesh(size), idle_limit, counters_,
                           std::chrono::seconds(30),
                           std::chrono::microseconds(200));
      });
}

// Nothing that comes for this end of a connection gets there, as behind a
// firewall that has forgotten it. False: it cannot be had here.
bool DropIncoming(const Socket& socket) {
  sock_filter drop_all[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
  const sock_fprog program = {1, drop_all};
  return setsockopt(socket.fd(), SOL_SOCKET, SO_ATTACH_FILTER, &program,
                    sizeof(program)) == 0;
}

// Fault: the link between ranks 1 and 2 of a ring drops what is sent, all
// others work. Error: on these two, and it names the other of them; the rest
// wait until they are told.
TEST_F(TcpTransportTest, AStuckLinkIsNamedByItsEndsAlone) {
  constexpr int kSize = 4;
  std::vector<Links> links = ConnectedMesh(kSize);
  for (int end : {1, 2}) {
    if (!DropIncoming(links[end].at(3 - end).socket())) {
      GTEST_SKIP() << "a sandbox forbids filters: " << strerror(errno);
    }
  }
  auto group = NewTcpGroup(std::move(links), IdleLimit::kNever, counters_,
                           std::chrono::seconds(2));
  LogCapture log;
  std::vector<Status> statuses(kSize);
  std::atomic<int> failed{0};
  const Status told = UnavailableError("told by the control plane");
  RunRanks(kSize, [&](int rank) {
    std::vector<uint8_t> out(1000), in(1000);
    for (uint64_t tag = 0; statuses[rank].ok(); ++tag) {
      SendReceivePlan duplex = Whole(tag, (rank + 1) % kSize, out,
                                     (rank + kSize - 1) % kSize, in, 300);
      statuses[rank] = group[rank]->Run(duplex);
    }
    // The others are told once both know.
    if (++failed != 2) return;
    for (int other : {0, 3}) group[other]->Abort(told);
  });
  EXPECT_EQ(statuses[0], told);
  EXPECT_EQ(statuses[3], told);
  EXPECT_NE(statuses[1].message().find("rank 2"), std::string::npos)
      << statuses[1].ToString();
  EXPECT_NE(statuses[2].message().find("rank 1"), std::string::npos)
      << statuses[2].ToString();
}

// Its system acknowledges what comes, and its control thread answers.
TEST_F(TcpTransportTest, ASlowRankIsWaitedForBeyondTheLimitOfLinks) {
  auto group = NewTcpGroup(ConnectedMesh(2), IdleLimit::kNever, counters_,
                           std::chrono::milliseconds(600));
  LogCapture log;
  RunRanks(2, [&](int rank) {
    // More than the system takes.
    std::vector<uint8_t> out(32 << 20), in(32 << 20);
    SendReceivePlan duplex = Whole(6, 1 - rank, out, 1 - rank, in, 1 << 20);
    if (rank == 1) Pause(std::chrono::milliseconds(2000), Soon());
    const Status status = group[rank]->Run(duplex);
    EXPECT_TRUE(status.ok()) << status.ToString();
  });
  ASSERT_GE(log.count(LogLevel::kWarning), 1);
  EXPECT_NE(log.lines().front().find("the connections are alive"),
            std::string::npos);
}

// As when this rank leaves.
TEST_F(TcpTransportTest, ALimitMayBeLoweredWhileARankWaits) {
  auto [ours, theirs] = ConnectedPair();
  Links links;
  links[1] = Link(std::move(ours));
  auto limit = std::make_shared<IdleLimit>(IdleLimit::kNever);
  auto transport = TcpTransport::Create(
      {0, 2, limit, std::chrono::seconds(30), counters_}, std::move(links));
  ASSERT_TRUE(transport.ok());
  RunRanks(2, [&](int thread) {
    if (thread == 1) return limit->Lower(std::chrono::milliseconds(10));
    std::vector<uint8_t> in(10);
    SendReceivePlan duplex = Whole(1, -1, in, 1, in, 10);
    EXPECT_EQ((*transport)->Run(duplex).code(), StatusCode::kDeadlineExceeded);
  });
}

TEST_F(TcpTransportTest, TheHeaderIsAsDocumented) {
  Socket peer;
  auto transport = NewWithRawPeer(&peer);
  std::vector<uint8_t> out = {'a', 'b', 'c'};
  SendReceivePlan duplex = Whole(0x0102030405060708, 1, out, -1, out, 3);
  ASSERT_TRUE(transport->Run(duplex).ok());
  std::string got(19, '\0');
  ASSERT_TRUE(ReadFull(peer, got.data(), got.size(), Soon()).ok());
  EXPECT_EQ(got, std::string("\x08\x07\x06\x05\x04\x03\x02\x01"
                             "\x03\x00\x00\x00\x00\x00KRabc",
                             19));
}

TEST_F(TcpTransportTest, AStreamThatLostItsPlaceIsAnError) {
  Socket peer;
  auto transport = NewWithRawPeer(&peer);
  const std::string rubbish(40, 'x');
  ASSERT_TRUE(WriteFull(peer, rubbish.data(), rubbish.size(), Soon()).ok());
  std::vector<uint8_t> in(10);
  SendReceivePlan duplex = Whole(1, -1, in, 1, in, 10);
  Status status = transport->Run(duplex);
  EXPECT_EQ(status, InternalError("what rank 1 sent is no data header"));
}

TEST_F(TcpTransportTest, ADifferentLengthIsAnError) {
  auto group = NewGroup(2, std::chrono::seconds(30));
  RunRanks(2, [&](int rank) {
    std::vector<uint8_t> memory(rank == 0 ? 100 : 99);
    SendReceivePlan duplex =
        Whole(6, rank == 0 ? 1 : -1, memory, rank == 0 ? -1 : 0, memory, 1000);
    Status status = group[rank]->Run(duplex);
    if (rank == 0) return;
    EXPECT_EQ(status, InternalError("rank 0 sends 100 bytes in collective 6, "
                                    "this rank expects 99"));
  });
}

TEST_F(TcpTransportTest, AHeaderInPiecesIsPutTogether) {
  Socket peer;
  auto transport = NewWithRawPeer(&peer);
  uint8_t header[kDataHeaderBytes];
  EncodeDataHeader({77, 2}, header);
  std::string bytes(reinterpret_cast<char*>(header), sizeof(header));
  bytes += "hi";
  std::vector<uint8_t> in(2);
  SendReceivePlan duplex = Whole(77, -1, in, 1, in, 10);
  RunRanks(2, [&](int rank) {
    if (rank == 0) {
      Status status = transport->Run(duplex);
      EXPECT_TRUE(status.ok()) << status.ToString();
      return;
    }
    for (char byte : bytes) {
      EXPECT_TRUE(WriteFull(peer, &byte, 1, Soon()).ok());
      Pause(std::chrono::milliseconds(1), Soon());
    }
  });
  EXPECT_EQ(in, (std::vector<uint8_t>{'h', 'i'}));
}

// A part of it comes each millisecond, and would be found by whoever looks.
TEST_F(TcpTransportTest, WhoAwaitsMuchSleeps) {
  constexpr size_t kBytes = size_t{8} << 20;
  constexpr size_t kSegment = size_t{1} << 20;
  constexpr size_t kPiece = size_t{8} << 10;
  auto [ours, peer] = ConnectedPair();
  Links links;
  links[1] = Link(std::move(ours));
  auto transport = TcpTransport::Create(
      {0, 2, std::make_shared<IdleLimit>(std::chrono::seconds(30)),
       std::chrono::seconds(30), counters_, RankSet(), /*trace=*/nullptr,
       /*spin=*/std::chrono::seconds(1)},
      std::move(links));
  ASSERT_TRUE(transport.ok());
  std::vector<uint8_t> in(kBytes);
  // Whole begins with a segment of nothing.
  SendReceivePlan plan = Whole(77, -1, in, 1, in, kSegment);
  TimePoint began;
  Duration before{}, used{}, passed{};  // until the first segment is there
  plan.advance = [&](SendReceivePlan& p) {
    if (p.incoming[0].received > 1) return;
    used = ThreadTime() - before;
    passed = std::chrono::steady_clock::now() - began;
  };
  const Socket& theirs = peer;  // a binding cannot be captured
  RunRanks(2, [&](int thread) {
    if (thread == 0) {
      before = ThreadTime();
      began = std::chrono::steady_clock::now();
      EXPECT_TRUE((*transport)->Run(plan).ok());
      return;
    }
    uint8_t header[kDataHeaderBytes];
    EncodeDataHeader({77, kBytes}, header);
    EXPECT_TRUE(WriteFull(theirs, header, sizeof(header), Soon()).ok());
    const std::vector<uint8_t> piece(kPiece, 7);
    for (size_t sent = 0; sent < kBytes; sent += kPiece) {
      EXPECT_TRUE(WriteFull(theirs, piece.data(), kPiece, Soon()).ok());
      if (sent < kSegment) Pause(std::chrono::milliseconds(1), Soon());
    }
  });
  EXPECT_LT(used.count(), passed.count() / 2);
  EXPECT_EQ(in, std::vector<uint8_t>(kBytes, 7));
}

TEST_F(TcpTransportTest, ANonPeerIsAnErrorThatBreaksNothing) {
  Socket peer;
  auto transport = NewWithRawPeer(&peer);
  SendReceivePlan duplex;
  duplex.outgoing.push_back({5, {}});
  EXPECT_EQ(transport->Run(duplex).code(), StatusCode::kFailedPrecondition);
  SendReceivePlan nothing;
  EXPECT_TRUE(transport->Run(nothing).ok());
}

// Fault: an algorithm that allows nothing. Error: at once, not a hang.
TEST_F(TcpTransportTest, APlanThatWaitsForNothingIsAnError) {
  Socket peer;
  auto transport = NewWithRawPeer(&peer);
  std::vector<uint8_t> out(10);
  SendReceivePlan plan = Whole(9, 1, out, -1, out, 10);
  plan.outgoing[0].released = 0;
  EXPECT_EQ(transport->Run(plan),
            InternalError("the plan of collective 9 waits for nothing"));
}

// A wait that misses the signal lasts for kNap, half a second.
TEST_F(TcpTransportTest, AnEventWakesAWaitingRank) {
  constexpr int kCount = 20;
  Socket peer;
  auto transport = NewWithRawPeer(&peer);
  ManualEvents events;
  const TimePoint began = std::chrono::steady_clock::now();
  RunRanks(2, [&](int thread) {
    for (int i = 1; i <= kCount; ++i) {
      if (thread == 1) {
        EXPECT_TRUE(Eventually([&] { return events.times_armed() >= i; }));
        events.Happen();
        continue;
      }
      SendReceivePlan plan;
      plan.events = &events;
      plan.busy = true;
      plan.advance = [&](SendReceivePlan& p) { p.busy = events.Look() < i; };
      EXPECT_TRUE(transport->Run(plan).ok());
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

// Fault: a bell that was rung for what had been seen. It costs a look, not a
// core until the next segment comes.
TEST_F(TcpTransportTest, ALateSignalDoesNotKeepARankFromSleeping) {
  Socket peer;
  auto transport = NewWithRawPeer(&peer);
  ManualEvents events;
  events.SignalLate();
  std::vector<uint8_t> in(2);
  SendReceivePlan plan = Whole(77, -1, in, 1, in, 10);
  plan.events = &events;
  RunRanks(2, [&](int thread) {
    if (thread == 0) {
      EXPECT_TRUE(transport->Run(plan).ok());
      return;
    }
    // It sleeps again after it was woken for nothing.
    EXPECT_TRUE(Eventually([&] { return events.times_armed() >= 2; }));
    uint8_t header[kDataHeaderBytes];
    EncodeDataHeader({77, 2}, header);
    EXPECT_TRUE(WriteFull(peer, header, sizeof(header), Soon()).ok());
    EXPECT_TRUE(WriteFull(peer, "hi", 2, Soon()).ok());
  });
  EXPECT_EQ(in, (std::vector<uint8_t>{'h', 'i'}));
}

// A rank of this host may be what it waits for.
TEST_F(TcpTransportTest, WhatEventsWaitForIsNamed) {
  auto group = NewGroup(2, std::chrono::milliseconds(100));
  ManualEvents events;
  std::vector<uint8_t> in(10);
  SendReceivePlan plan = Whole(1, -1, in, 1, in, 10);
  plan.events = &events;
  const Status status = group[0]->Run(plan);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find(
                "while receiving from rank 1 and waiting for the test"),
            std::string::npos)
      << status.ToString();
}

TEST_F(TcpTransportTest, CountsBytes) {
  auto group = NewGroup(2, std::chrono::seconds(30));
  RunRanks(2, [&](int rank) {
    std::vector<uint8_t> out(1000), in(1000);
    SendReceivePlan duplex = Whole(6, 1 - rank, out, 1 - rank, in, 300);
    EXPECT_TRUE(group[rank]->Run(duplex).ok());
  });
  EXPECT_EQ(counters_.data_bytes_sent, 2u * (1000 + kDataHeaderBytes));
  EXPECT_EQ(counters_.data_bytes_received, 2u * (1000 + kDataHeaderBytes));
}

}  // namespace
}  // namespace keras_ring
