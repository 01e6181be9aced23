// Ranks that die while their connections still stand: the kernel has not closed
// them yet, for it frees memory first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/host/liveness.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/message.h"
#include "csrc/runtime/runtime.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/runtime_cluster.h"

namespace keras_ring {
namespace {

RuntimeClusterSetup SharedMemory() {
  RuntimeClusterSetup setup;
  setup.shares_memory = true;
  return setup;
}

LivenessFutex& LivenessOf(const Runtime& runtime) {
  const HostGroup& host = *runtime.deps().host;
  return host.liveness(host.local_rank());
}

bool BecomesAlive(const Runtime& runtime) {
  const Deadline deadline = Deadline::AfterSeconds(20);
  while (LivenessOf(runtime).state() != LivenessFutex::State::kAlive) {
    if (deadline.expired()) return false;
    Pause(std::chrono::milliseconds(1), deadline);
  }
  return true;
}

// Fault: a rank dies, one that has peers in the control tree or one that is
// such a peer. Error: on every other rank the same, though the connections of
// the dead say nothing; and whoever has it may end, too, without being blamed.
TEST(Death, IsToldBeforeConnectionsClose) {
  struct Case {
    std::vector<std::string> hosts;
    int dead;
  };
  const std::vector<std::string> one(4, "a");
  for (const Case& each :
       {Case{one, 0}, Case{one, 2}, Case{{"a", "a"}, 1},
        Case{{"a", "a", "a", "b", "b", "b"}, 1},
        Case{{"a", "a", "a", "b", "b", "b"}, 5},
        // By these the others of their host reach the rest.
        Case{{"a", "a", "b", "b", "b"}, 0}, Case{{"a", "a", "b", "b", "b"}, 2},
        Case{{"a", "b", "b"}, 1}}) {
    SCOPED_TRACE(each.dead);
    LogCapture log;
    RuntimeCluster cluster(each.hosts, Options(), SharedMemory());
    std::vector<FloatOperation> operations(cluster.size());
    for (int rank = 0; rank < cluster.size(); ++rank) {
      ASSERT_TRUE(BecomesAlive(cluster.at(rank)));
      if (rank == each.dead) continue;
      operations[rank].input.assign(4, 1.0f);
      ASSERT_TRUE(EnqueueSum(cluster.at(rank), "w", operations[rank]).ok());
    }
    LivenessOf(cluster.at(each.dead)).MarkDeadForTest();
    for (int rank = 0; rank < cluster.size(); ++rank) {
      if (rank == each.dead) continue;
      const Status status = Await(operations[rank]);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_EQ(status.message(), "lost rank " + std::to_string(each.dead) +
                                      " (host " + each.hosts[each.dead] +
                                      "): its process has ended");
      EXPECT_EQ(LivenessOf(cluster.at(rank)).state(),
                LivenessFutex::State::kLeft);
    }
    cluster.CutOff(each.dead);  // it lives on here, and nobody has told it
  }
}

// A death that only the connection tells of at first is named alike.
TEST(Death, IsNamedAlikeHoweverItIsHeardOf) {
  LogCapture log;
  RuntimeClusterParts parts =
      ConnectRuntimes({"a", "a", "a"}, Options(), SharedMemory());
  parts.deps[0].host->liveness(2).MarkDeadForTest();
  parts.deps[0].host->liveness(1).Leave();
  parts.deps[2].channel.reset();
  const std::shared_ptr<Runtime> runtime =
      Runtime::Start(std::move(parts.deps[0])).value();
  const Deadline deadline = Deadline::AfterSeconds(20);
  while (runtime->status().ok() && !deadline.expired()) {
    Pause(std::chrono::milliseconds(1), deadline);
  }
  EXPECT_EQ(runtime->status().message(),
            "lost rank 2 (host a): its process has ended");
}

// The deputy of another host may hear of the agreed end, and go, before this
// one's leader has passed it on. It has said so; one that has not is lost.
TEST(Death, ADeputyThatHasLeftIsNone) {
  for (bool says_bye : {true, false}) {
    SCOPED_TRACE(says_bye);
    LogCapture log;
    RuntimeClusterParts parts =
        ConnectRuntimes({"a", "a", "b", "b"}, Options(), SharedMemory());
    const std::shared_ptr<Runtime> runtime =
        Runtime::Start(std::move(parts.deps[3])).value();
    if (says_bye) parts.deps[1].channel->Send(3, EncodeMessage(ByeMessage{}));
    parts.deps[1].channel.reset();
    const Deadline deadline =
        Deadline::After(std::chrono::milliseconds(says_bye ? 200 : 20000));
    while (runtime->status().ok() && !deadline.expired()) {
      Pause(std::chrono::milliseconds(1), deadline);
    }
    if (says_bye) {
      EXPECT_TRUE(runtime->status().ok()) << runtime->status().ToString();
    } else {
      EXPECT_THAT(runtime->status().message(),
                  testing::StartsWith("lost rank 1 (host a): its control"));
    }
    parts.deps[2].channel->Send(
        3, EncodeMessage(AbortMessage{UnavailableError("the test ends")}));
  }
}

// What it had said before is the cause: it may have ended because of that.
TEST(Death, WhatTheDeadHadSaidIsTheCause) {
  for (int round = 0; round < 20; ++round) {
    LogCapture log;
    RuntimeClusterParts parts =
        ConnectRuntimes({"a", "a"}, Options(), SharedMemory());
    const Status cause = UnavailableError("lost rank 7 (host z, pid 1): gone");
    const std::shared_ptr<Runtime> runtime =
        Runtime::Start(std::move(parts.deps[0])).value();
    parts.deps[1].channel->Send(0, EncodeMessage(AbortMessage{cause}));
    parts.deps[1].host->liveness(1).MarkDeadForTest();
    const Deadline deadline = Deadline::AfterSeconds(20);
    while (runtime->status().ok() && !deadline.expired()) {
      Pause(std::chrono::milliseconds(1), deadline);
    }
    EXPECT_EQ(runtime->status(), cause);
  }
}

// Ranks that come to an agreed end are not lost, whoever leaves first.
TEST(Death, AnAgreedEndIsNone) {
  for (int round = 0; round < 20; ++round) {
    LogCapture log;
    RuntimeCluster cluster({"a", "a", "a"}, Options(), SharedMemory());
    RunRanks(3, [&](int rank) {
      FloatOperation last;
      last.input.assign(20000, 1.0f);
      ASSERT_TRUE(EnqueueSum(cluster.at(rank), "last", last).ok());
      const Status status = Await(last);
      ASSERT_TRUE(status.ok()) << status.ToString();
      cluster.at(rank).Shutdown("");
      EXPECT_EQ(LivenessOf(cluster.at(rank)).state(),
                LivenessFutex::State::kLeft);
      cluster.Destroy(rank);
    });
  }
}

}  // namespace
}  // namespace keras_ring
