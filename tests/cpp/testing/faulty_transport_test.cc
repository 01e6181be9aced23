#include "csrc/testing/faulty_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "csrc/testing/local_transport.h"
#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

// Two ranks that exchange three segments, `runs` times; rank 0 has the fault.
// Returns the statuses by rank.
std::vector<std::vector<Status>> Exchange(const Fault& fault, int runs) {
  auto transports = CreateLocalTransports(2);
  transports[0] =
      std::make_unique<FaultyTransport>(std::move(transports[0]), fault);
  std::vector<std::vector<Status>> statuses(2);
  RunRanks(2, [&](int rank) {
    for (int run = 0; run < runs; ++run) {
      const std::string sent(1000, 's');
      std::string received(1000, '?');
      SendReceivePlan duplex;
      duplex.tag = run;
      Outgoing outgoing{1 - rank, {}};
      Incoming incoming{1 - rank, {}};
      for (int i = 0; i < 3; ++i) {
        outgoing.segments.push_back({sent.data(), sent.size()});
        incoming.segments.push_back({received.data(), received.size()});
      }
      duplex.outgoing.push_back(outgoing);
      duplex.incoming.push_back(incoming);
      duplex.advance = [](SendReceivePlan& plan) {
        const size_t received = plan.incoming[0].received;
        plan.outgoing[0].released = received + 1;
        plan.incoming[0].allowed = received + 1;
      };
      statuses[rank].push_back(transports[rank]->Run(duplex));
      EXPECT_TRUE(!statuses[rank].back().ok() || received == sent);
    }
    // Else the peer of one that only failed would wait for its limit.
    if (fault.kind == Fault::Kind::kFail) transports[rank].reset();
  });
  return statuses;
}

TEST(FaultyTransportTest, WithoutAFaultNothingHappens) {
  for (const auto& of_rank : Exchange(Fault(), 3)) {
    for (const Status& status : of_rank) EXPECT_TRUE(status.ok());
  }
}

TEST(FaultyTransportTest, FailsAtTheChosenRunAndEverAfter) {
  for (size_t after_receives : {0, 1, 2}) {
    Fault fault;
    fault.kind = Fault::Kind::kFail;
    fault.run = 1;
    fault.after_receives = after_receives;
    const auto statuses = Exchange(fault, 3);
    EXPECT_TRUE(statuses[0][0].ok());
    EXPECT_EQ(statuses[0][1], InternalError("rank 0 fails on request"));
    EXPECT_EQ(statuses[0][2], statuses[0][1]);
    EXPECT_TRUE(statuses[1][0].ok());
  }
}

TEST(FaultyTransportTest, VanishesForItsPeers) {
  for (size_t after_receives : {0, 1, 2}) {
    Fault fault;
    fault.kind = Fault::Kind::kVanish;
    fault.run = 1;
    fault.after_receives = after_receives;
    const auto statuses = Exchange(fault, 3);
    EXPECT_TRUE(statuses[1][0].ok());
    EXPECT_EQ(statuses[1][1], UnavailableError("rank 0 closed the connection"));
    EXPECT_EQ(statuses[0][2].code(), StatusCode::kUnavailable);
  }
}

TEST(FaultyTransportTest, FlipsATag) {
  Fault fault;
  fault.kind = Fault::Kind::kFlipTag;
  fault.run = 1;
  const auto statuses = Exchange(fault, 2);
  EXPECT_TRUE(statuses[1][0].ok());
  EXPECT_EQ(statuses[1][1].code(), StatusCode::kInternal);
}

TEST(FaultyTransportTest, DelaysUntilAborted) {
  Fault fault;
  fault.kind = Fault::Kind::kDelay;
  fault.delay = std::chrono::hours(1);
  auto transports = CreateLocalTransports(2);
  FaultyTransport faulty(std::move(transports[0]), fault);
  RunRanks(2, [&](int rank) {
    if (rank == 1) {
      faulty.Abort(AbortedError("enough"));
      return;
    }
    SendReceivePlan duplex;
    duplex.incoming.push_back({1, {}});
    EXPECT_EQ(faulty.Run(duplex), AbortedError("enough"));
  });
}

}  // namespace
}  // namespace keras_ring
