// What is special to LocalTransport: its bounded pipes and its closing. What
// all transports do is in the suite of transport_conformance.h.
#include "csrc/testing/local_transport.h"

#include <gtest/gtest.h>

#include <string>

#include "csrc/testing/run_ranks.h"
#include "csrc/testing/transport_conformance.h"

namespace keras_ring {
namespace {

const std::string kHello = "hello";

// `content` must outlive the result.
SendReceivePlan Sending(int to, const std::string& content, uint64_t tag = 1) {
  SendReceivePlan duplex;
  duplex.tag = tag;
  duplex.outgoing.push_back({to, {{content.data(), content.size()}}, 1});
  return duplex;
}

SendReceivePlan Receiving(int from, std::string& content, uint64_t tag = 1) {
  SendReceivePlan duplex;
  duplex.tag = tag;
  duplex.incoming.push_back({from, {{content.data(), content.size()}}, 1});
  return duplex;
}

// In bytes: what waits at nearly every step, and what seldom does.
TEST(LocalTransportTest, Conformance) {
  for (size_t pipe_bytes : {size_t{1000}, size_t{1} << 20}) {
    RunTransportConformance([=](int size, std::chrono::milliseconds limit) {
      LocalTransportOptions options;
      options.pipe_bytes = pipe_bytes;
      options.limit = limit;
      return CreateLocalTransports(size, options);
    });
  }
}

TEST(LocalTransportTest, KnowsItsPlace) {
  auto transports = CreateLocalTransports(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(transports[rank]->rank(), rank);
    EXPECT_EQ(transports[rank]->size(), 3);
  }
}

// What does not fit waits: here for a receiver that never reads.
TEST(LocalTransportTest, AFullPipeHoldsTheSenderBack) {
  LocalTransportOptions options;
  options.pipe_bytes = 100;
  options.limit = std::chrono::milliseconds(50);
  auto transports = CreateLocalTransports(2, options);
  const std::string fits(92, 'x');  // and the tag
  SendReceivePlan duplex = Sending(1, fits);
  EXPECT_TRUE(transports[0]->Run(duplex).ok());
  duplex = Sending(1, kHello);
  const Status status = transports[0]->Run(duplex);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("rank 1"), std::string::npos);
  EXPECT_EQ(transports[0]->Run(duplex), status);
}

TEST(LocalTransportTest, WhatWasSentBeforeClosingArrives) {
  auto transports = CreateLocalTransports(2);
  SendReceivePlan duplex = Sending(1, kHello);
  EXPECT_TRUE(transports[0]->Run(duplex).ok());
  transports[0].reset();
  std::string content(5, '?');
  duplex = Receiving(0, content);
  EXPECT_TRUE(transports[1]->Run(duplex).ok());
  EXPECT_EQ(content, kHello);
  const Status status = transports[1]->Run(duplex);
  EXPECT_EQ(status, UnavailableError("rank 0 closed the connection"));
  EXPECT_EQ(transports[1]->Run(duplex), status);
}

TEST(LocalTransportTest, SendingToAClosedPeerFails) {
  auto transports = CreateLocalTransports(2);
  transports[1].reset();
  SendReceivePlan duplex = Sending(1, kHello);
  EXPECT_EQ(transports[0]->Run(duplex),
            UnavailableError("rank 1 closed the connection"));
}

TEST(LocalTransportTest, ClosingWakesAWaitingPeer) {
  auto transports = CreateLocalTransports(2);
  RunRanks(2, [&](int rank) {
    if (rank == 1) {
      transports[1].reset();
      return;
    }
    std::string content(5, '?');
    SendReceivePlan duplex = Receiving(1, content);
    EXPECT_EQ(transports[0]->Run(duplex).code(), StatusCode::kUnavailable);
  });
}

TEST(LocalTransportTest, DifferentTagsNameThePeer) {
  auto transports = CreateLocalTransports(2);
  SendReceivePlan duplex = Sending(1, kHello, 4);
  EXPECT_TRUE(transports[0]->Run(duplex).ok());
  std::string content(5, '?');
  duplex = Receiving(0, content, 5);
  EXPECT_EQ(transports[1]->Run(duplex),
            InternalError("rank 0 runs collective 4 while this rank runs 5"));
  EXPECT_EQ(content, "?????");
}

}  // namespace
}  // namespace keras_ring
