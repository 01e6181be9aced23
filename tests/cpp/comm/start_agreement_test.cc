#include "csrc/comm/rendezvous/start_agreement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/rendezvous/start_monitor.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/loopback.h"
#include "tests/cpp/comm/rendezvous_peer.h"

namespace keras_ring {
namespace {

std::vector<Member> Members(int size) {
  std::vector<Member> members(size);
  for (int rank = 0; rank < size; ++rank) {
    members[rank].host = std::string(1, static_cast<char>('a' + rank));
    members[rank].pid = 70 + rank;
  }
  return members;
}

std::string Word(const Status& status) {
  JobTable table;
  table.status = status;
  return Encode(table);
}

TEST(StartVerdict, AllAreWell) {
  EXPECT_TRUE(StartVerdict({{"started/1", Word(OkStatus())},
                            {"started/2", Word(OkStatus())}},
                           Members(3), OkStatus())
                  .ok());
}

// Whoever has gone is the cause, whatever the others say of each other.
TEST(StartVerdict, WhoHasGoneIsToBlame) {
  const Status status =
      StartVerdict({{"started/1", Word(UnavailableError("rank 0 hung up"))},
                    {"started/2", ""}},
                   Members(4), DeadlineExceededError("rank 3 did not connect"));
  EXPECT_EQ(status,
            UnavailableError("lost rank 2 (host c, pid 72) while the job "
                             "started: its connection to rank 0 ended"));
}

TEST(StartVerdict, WhoIsSilentIsToBlameIfNobodyHasGone) {
  const Status status =
      StartVerdict({{"started/2", Word(DeadlineExceededError("rank 1"))}},
                   Members(4), OkStatus());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  for (const char* words :
       {"lost rank 1 (host b, pid 71)", "lost rank 3 (host d, pid 73)",
        "nothing came from it within KERAS_RING_START_TIMEOUT"}) {
    EXPECT_NE(status.message().find(words), std::string::npos)
        << status.ToString();
  }
  EXPECT_EQ(status.message().find("rank 2"), std::string::npos);
}

// A host of many ranks, or a switch of many hosts.
TEST(StartVerdict, ManyThatAreLostAreToldInOneSentence) {
  std::vector<Member> members(64);
  StoreEntries words;
  for (int rank = 0; rank < 64; ++rank) {
    members[rank].host = "node" + std::to_string(rank / 8);
    if (rank > 0) words[StartedKey(rank)] = Word(OkStatus());
  }
  for (int rank = 8; rank < 64; ++rank) words[StartedKey(rank)] = "";
  words[StartedKey(20)] = Word(OkStatus());
  EXPECT_EQ(StartVerdict(words, members, OkStatus()),
            UnavailableError(
                "lost ranks 8-19, 21-63 (55 ranks, on node1, node2, node3, "
                "node4 and 3 more) while the job started, of each: its "
                "connection to rank 0 ended"));
}

// All are there: the first that failed by itself and not for another's sake.
TEST(StartVerdict, ATroubleOfItsOwnIsTheCause) {
  const Status status =
      StartVerdict({{"started/1", Word(UnavailableError("rank 2 hung up"))},
                    {"started/2", Word(ResourceExhaustedError("no memory"))},
                    {"started/3", Word(InternalError("also"))}},
                   Members(4), DeadlineExceededError("rank 1 did not come"));
  EXPECT_EQ(status, ResourceExhaustedError(
                        "rank 2 (host c, pid 72) could not start: no memory"));
  EXPECT_EQ(StartVerdict({{"started/1", Word(UnavailableError("why"))}},
                         Members(2), OkStatus()),
            UnavailableError("rank 1 (host b, pid 71) could not start: why"));
}

// Where there is no need to wait for all, who has said nothing is not blamed.
TEST(StartVerdict, WhoMaySpeakYetIsNotToBlame) {
  EXPECT_EQ(
      StartVerdict({{"started/1", Word(ResourceExhaustedError("no memory"))}},
                   Members(3), OkStatus(), /*in_time=*/true),
      ResourceExhaustedError(
          "rank 1 (host b, pid 71) could not start: no memory"));
}

// The job cannot start, whatever comes: others need not be waited for.
TEST(IsFailure, WhatStandsByItself) {
  EXPECT_TRUE(IsFailure("started/1", ""));
  EXPECT_TRUE(IsFailure("started/1", "\xff\xff"));
  EXPECT_TRUE(IsFailure("started/1", Word(ResourceExhaustedError("why"))));
  EXPECT_FALSE(IsFailure("started/1", Word(OkStatus())));
  EXPECT_FALSE(IsFailure("started/1", Word(UnavailableError("rank 2"))));
  EXPECT_FALSE(IsFailure("started/1", Word(DeadlineExceededError("rank 2"))));
  EXPECT_FALSE(IsFailure("join/1", ""));
}

TEST(StartVerdict, GarbageIsAnError) {
  EXPECT_EQ(
      StartVerdict({{"started/1", "\xff\xff"}}, Members(2), OkStatus()).code(),
      StatusCode::kInternal);
}

class StartWatchTest : public DescriptorTest {};

TEST_F(StartWatchTest, TellsOfBytesAndOfTheEnd) {
  for (bool ends : {false, true}) {
    auto [here, there] = ConnectedPair();
    std::atomic<int> told{0};
    auto watch = StartMonitor::Start(here, [&] { ++told; });
    ASSERT_TRUE(watch.ok());
    EXPECT_EQ(told, 0);
    if (ends) {
      there.Close();
    } else {
      ASSERT_TRUE(WriteFull(there, "x", 1, Soon()).ok());
    }
    EXPECT_TRUE(Eventually([&] { return told == 1; }));
    // It was not read.
    char byte;
    EXPECT_EQ(ReadFull(here, &byte, 1, Soon()).ok(), !ends);
  }
}

TEST_F(StartWatchTest, SaysNothingOnceItIsOver) {
  auto [here, there] = ConnectedPair();
  std::atomic<int> told{0};
  auto watch = StartMonitor::Start(here, [&] { ++told; });
  ASSERT_TRUE(watch.ok());
  watch->reset();
  there.Close();
  Pause(std::chrono::milliseconds(20), Soon());
  EXPECT_EQ(told, 0);
}

// Whether the ranks of a host come by a relay.
class StartAgreementTest : public DescriptorTest,
                           public testing::WithParamInterface<bool> {
 protected:
  void TearDown() override {
    meshes_.clear();
    listener_.socket.Close();
    DescriptorTest::TearDown();
  }

  // Every rank joins, then `rank_of_trouble` does as told and the others agree;
  // where they `want_links`, after they have waited for one to that rank.
  std::vector<Status> Agree(
      int size, Deadline deadline, int rank_of_trouble,
      const std::function<void(std::unique_ptr<StartingMesh>&)>& trouble,
      bool want_links = false) {
    std::vector<Status> agreed(size);
    meshes_.clear();
    meshes_.resize(size);
    RunRanks(size, [&](int rank) {
      RendezvousOptions options = OptionsOfPeer(rank, size, listener_, key_);
      options.by_host = GetParam();
      auto mesh = Rendezvous(options, deadline, counters_);
      ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
      meshes_[rank] = std::move(mesh).value();
      if (rank == rank_of_trouble) {
        trouble(meshes_[rank]);
      } else {
        Status own;
        if (want_links) {
          own = meshes_[rank]
                    ->Connect(LinkKind::kData, {rank_of_trouble}, deadline)
                    .status();
          // Higher ranks dial, and may have had theirs.
          EXPECT_TRUE(!own.ok() || rank > rank_of_trouble);
        }
        agreed[rank] = meshes_[rank]->StartBarrier(own);
      }
    });
    return agreed;
  }

  // All but `blamed` name it, and nobody else.
  static void ExpectBlamed(const std::vector<Status>& agreed, int blamed,
                           const std::string& words) {
    const int size = static_cast<int>(agreed.size());
    for (int rank = 0; rank < size; ++rank) {
      if (rank == blamed) continue;
      const std::string& text = agreed[rank].message();
      EXPECT_EQ(agreed[rank].code(), StatusCode::kUnavailable);
      EXPECT_NE(text.find(words), std::string::npos) << text;
      for (int other = 0; other < size; ++other) {
        const std::string name = "lost rank " + std::to_string(other) + " (";
        EXPECT_EQ(text.find(name) != std::string::npos, other == blamed)
            << rank << ": " << text;
      }
    }
  }

  const JobKey key_ = NewKey();
  Counters counters_;
  TestListener listener_;
  std::vector<std::unique_ptr<StartingMesh>> meshes_;
};

TEST_P(StartAgreementTest, AllAreWell) {
  for (int size : {1, 2, 5}) {
    auto agreed = Agree(size, Soon(), -1, nullptr);
    for (const Status& status : agreed) {
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
  }
}

// Fault: a rank is gone before it says a word. Error: on all others, at once.
TEST_P(StartAgreementTest, ARankThatGoesIsNamedOnAllRanks) {
  for (int victim : {0, 1, 3}) {
    const TimePoint began = std::chrono::steady_clock::now();
    ExpectBlamed(
        Agree(4, Soon(), victim,
              [](std::unique_ptr<StartingMesh>& mesh) { mesh.reset(); }),
        victim, "while the job started");
    EXPECT_LT(std::chrono::steady_clock::now() - began,
              std::chrono::seconds(10));
  }
}

// Fault: a rank is gone, or cannot start, while others wait for a link to it.
// Error: on all others, at once.
TEST_P(StartAgreementTest, NobodyWaitsForALinkThatWillNotCome) {
  for (bool goes : {true, false}) {
    for (int victim : {0, 1, 3}) {
      const TimePoint began = std::chrono::steady_clock::now();
      const auto agreed = Agree(
          4, Deadline::AfterSeconds(50), victim,
          [goes](std::unique_ptr<StartingMesh>& mesh) {
            Pause(std::chrono::milliseconds(100), Soon());
            if (goes) {
              mesh.reset();
            } else {
              (void)mesh->StartBarrier(ResourceExhaustedError("no memory"));
            }
          },
          /*want_links=*/true);
      EXPECT_LT(std::chrono::steady_clock::now() - began,
                std::chrono::seconds(10));
      if (goes) ExpectBlamed(agreed, victim, "while the job started");
      for (int rank = 0; rank < 4 && !goes; ++rank) {
        if (rank == victim) continue;
        EXPECT_EQ(agreed[rank].code(), StatusCode::kResourceExhausted)
            << agreed[rank].ToString();
      }
    }
  }
}

// Fault: a rank stops. Error: on all others, when it should have come.
TEST_P(StartAgreementTest, ARankThatStopsIsNamedOnAllRanks) {
  for (int victim : {0, 1, 3}) {
    meshes_.clear();  // takes a while itself
    const TimePoint began = std::chrono::steady_clock::now();
    ExpectBlamed(
        Agree(4, AfterMs(400), victim, [](std::unique_ptr<StartingMesh>&) {}),
        victim, "nothing came from it");
    EXPECT_LT(std::chrono::steady_clock::now() - began,
              std::chrono::seconds(10));
  }
}

// Fault: a rank cannot start. Error: its own there, and on all others who and
// why; also on those that gave up because of it.
TEST_P(StartAgreementTest, ARankThatCannotStartIsNamedOnAllRanks) {
  for (int victim : {0, 1, 3}) {
    Status own;
    const auto agreed =
        Agree(4, Soon(), victim, [&](std::unique_ptr<StartingMesh>& mesh) {
          own = mesh->StartBarrier(ResourceExhaustedError("no memory"));
        });
    EXPECT_EQ(own, ResourceExhaustedError("no memory"));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string& text = agreed[rank].message();
      EXPECT_EQ(text.rfind("rank " + std::to_string(victim) + " (host ", 0), 0u)
          << text;
      EXPECT_NE(text.find(") could not start: no memory"), std::string::npos)
          << text;
    }
  }
}

// Rank 0 began first and is the first to give up: who began later does so with
// it, and is not taken for one that stopped.
TEST_P(StartAgreementTest, NobodyWaitsLongerThanRankZero) {
  RunRanks(2, [&](int rank) {
    RendezvousOptions options = OptionsOfPeer(rank, 2, listener_, key_);
    options.by_host = GetParam();
    const Deadline of_rank_zero = AfterMs(2000);
    auto mesh =
        Rendezvous(options, rank == 0 ? of_rank_zero : Soon(), counters_);
    ASSERT_TRUE(mesh.ok()) << mesh.status().ToString();
    EXPECT_LE((*mesh)->deadline().at(),
              of_rank_zero.at() + std::chrono::milliseconds(500));
    // Some of its time is left for telling the others why it gives up.
    if (rank == 0) {
      EXPECT_LE((*mesh)->deadline().at(),
                of_rank_zero.at() - std::chrono::milliseconds(100));
    }
    EXPECT_TRUE((*mesh)->StartBarrier(OkStatus()).ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, StartAgreementTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "ByHost" : "Direct";
                         });

}  // namespace
}  // namespace keras_ring
