#include "csrc/runtime/process_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "csrc/runtime/allgather_strings.h"
#include "csrc/runtime/process_runtime.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/process_sets_cluster.h"
#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kFlat = {"a", "a", "a"};
const std::vector<std::string> kTwoHosts = {"a", "a", "b"};

class ProcessSetsTest : public testing::TestWithParam<bool> {
 protected:
  RuntimeClusterSetup setup() const {
    RuntimeClusterSetup setup;
    setup.shares_memory = GetParam();
    return setup;
  }

  // Adds a set on all ranks; its number.
  static uint32_t AddAll(ProcessSetsCluster& cluster,
                         const std::vector<int32_t>& ranks) {
    std::vector<uint32_t> numbers(cluster.size());
    RunRanks(cluster.size(), [&](int rank) {
      Result<uint32_t> number = cluster.at(rank).Add(ranks);
      ASSERT_TRUE(number.ok()) << number.status().ToString();
      numbers[rank] = *number;
    });
    for (uint32_t number : numbers) EXPECT_EQ(number, numbers.front());
    return numbers.front();
  }

  // The sum of the members' ranks of the job, as `rank` gets it.
  static Status Sum(ProcessSetsCluster& cluster, int rank, uint32_t set,
                    const std::string& name, float* sum) {
    FloatOperation operation;
    operation.input = {float(rank)};
    KR_RETURN_IF_ERROR(
        EnqueueSum(*cluster.runtime(rank, set), name, operation));
    KR_RETURN_IF_ERROR(Await(operation));
    *sum = operation.output.front();
    return OkStatus();
  }

  LogCapture logs_{LogLevel::kWarning};
};

INSTANTIATE_TEST_SUITE_P(SharesMemory, ProcessSetsTest, testing::Bool());

TEST_P(ProcessSetsTest, OverlappingSetsSumAmongTheirMembers) {
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    ProcessSetsCluster cluster(hosts, Options(), setup());
    const std::vector<std::vector<int32_t>> members = {{0, 2}, {2, 1}, {1}};
    for (size_t i = 0; i < members.size(); ++i) {
      EXPECT_EQ(AddAll(cluster, members[i]), i + 1);
    }
    const float expected[] = {3, 2, 3, 1};
    RunRanks(cluster.size(), [&](int rank) {
      for (uint32_t set = 0; set <= members.size(); ++set) {
        if (!cluster.at(rank).RuntimeOf(set).ok()) continue;
        for (int i = 0; i < 50; ++i) {
          float sum = -1;
          Status status = Sum(cluster, rank, set, "x", &sum);
          ASSERT_TRUE(status.ok()) << status.ToString();
          ASSERT_EQ(sum, expected[set]) << "set " << set;
        }
      }
    });
  }
}

// Rank 0 is in both. Rank 2 comes late to one of them.
TEST_P(ProcessSetsTest, ASetDoesNotWaitForAnother) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  const uint32_t held = AddAll(cluster, {0, 2});
  const uint32_t free = AddAll(cluster, {0, 1});
  FloatOperation first;
  first.input.assign(1000, 1.0f);
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(0, held), "x", first).ok());
  RunRanks(2, [&](int rank) {
    for (int i = 0; i < 100; ++i) {
      float sum = -1;
      ASSERT_TRUE(Sum(cluster, rank, free, "x", &sum).ok());
      ASSERT_EQ(sum, 1);
    }
  });
  EXPECT_NE(first.status.wait_for(std::chrono::seconds(0)),
            std::future_status::ready);
  FloatOperation second;
  second.input.assign(1000, 2.0f);
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(2, held), "x", second).ok());
  EXPECT_TRUE(Await(first).ok());
  EXPECT_TRUE(Await(second).ok());
  EXPECT_EQ(first.output.front(), 3.0f);
}

TEST_P(ProcessSetsTest, DifferentCallsFailAlikeAndTheJobGoesOn) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  std::vector<Status> statuses(3);
  RunRanks(3, [&](int rank) {
    statuses[rank] = rank == 0   ? cluster.at(rank).Add({0, 1}).status()
                     : rank == 1 ? cluster.at(rank).Remove(7)
                                 : cluster.at(rank).Add({2, 0}).status();
  });
  for (const Status& status : statuses) EXPECT_EQ(status, statuses[0]);
  EXPECT_EQ(statuses[0].code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(statuses[0].message(),
              AllOf(HasSubstr("rank 0 calls add_process_set([0, 1])"),
                    HasSubstr("rank 1 calls remove_process_set(7)"),
                    HasSubstr("rank 2 calls add_process_set([0, 2])")));
  EXPECT_EQ(AddAll(cluster, {0, 2}), 1u);
}

TEST_P(ProcessSetsTest, WhatCannotBeASetIsRefused) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  AddAll(cluster, {0, 1});
  const std::vector<std::pair<std::vector<int32_t>, std::string>> cases = {
      {{}, "at least one rank"},
      {{0, 3}, "[0, 3]: the ranks of this job are 0 to 2"},
      {{-1, 1}, "[-1, 1]: the ranks of this job are 0 to 2"},
      {{1, 1}, "more than once"},
      {{1, 0}, "exists already, as process set 1"},
      {{2, 1, 0}, "are the global process set"},
  };
  RunRanks(3, [&](int rank) {
    for (const auto& [ranks, why] : cases) {
      const Status status = cluster.at(rank).Add(ranks).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr(why));
    }
    for (const auto& [number, why] :
         std::vector<std::pair<int64_t, std::string>>{{0, "the job itself"},
                                                      {2, "does not exist"},
                                                      {-1, "was not added"}}) {
      const Status status = cluster.at(rank).Remove(number);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr(why));
    }
  });
}

TEST_P(ProcessSetsTest, NumbersAreNotGivenAgain) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  for (uint32_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(AddAll(cluster, {0, 1}), i);
    RunRanks(3,
             [&](int rank) { EXPECT_TRUE(cluster.at(rank).Remove(i).ok()); });
    for (int rank = 0; rank < 3; ++rank) {
      const Status status = cluster.at(rank).RuntimeOf(i).status();
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(status.message(), HasSubstr("has been removed"));
    }
  }
}

// A function that was traced in one job is called in the next. Rank 2 was in no
// job before.
TEST_P(ProcessSetsTest, NumbersAreNotGivenAgainInTheNextJob) {
  std::vector<SetNumbers> numbers(3);
  {
    ProcessSetsCluster cluster({"a", "a"}, Options(), setup(), &numbers);
    for (const std::vector<int32_t>& ranks : {std::vector<int32_t>{0}, {1}}) {
      AddAll(cluster, ranks);
    }
  }
  ProcessSetsCluster cluster(kFlat, Options(), setup(), &numbers);
  EXPECT_EQ(AddAll(cluster, {0, 2}), 3u);
  for (int rank = 0; rank < 2; ++rank) {
    const Status status = cluster.at(rank).RuntimeOf(1).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("process set 1 was of a job that is over"),
                      HasSubstr("trace anew")));
  }
  EXPECT_EQ(cluster.at(0).RuntimeOf(0).value(), cluster.at(0).job());
  EXPECT_EQ(AddAll(cluster, {1, 2}), 4u);
}

TEST_P(ProcessSetsTest, SeveralAreMadeWithTheExchangesOfOne) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  const std::vector<std::vector<int32_t>> lists = {{2, 0}, {1}, {1, 2}};
  RunRanks(3, [&](int rank) {
    const auto numbers = cluster.at(rank).AddAll(lists);
    ASSERT_TRUE(numbers.ok()) << numbers.status().ToString();
    EXPECT_THAT(*numbers, ElementsAre(1, 2, 3));
    EXPECT_EQ(cluster.at(rank).job()->counters().buckets, 2u);
    for (int32_t set = 1; set <= 3; ++set) {
      if (!cluster.at(rank).RuntimeOf(set).ok()) continue;
      float sum = -1;
      ASSERT_TRUE(Sum(cluster, rank, set, "x", &sum).ok());
      EXPECT_EQ(sum, set == 1 ? 2 : set == 2 ? 1 : 3);
    }
    EXPECT_TRUE(cluster.at(rank).AddAll({})->empty());
  });
  EXPECT_EQ(AddAll(cluster, {0, 1}), 4u);
}

TEST_P(ProcessSetsTest, OfSeveralThatCannotAllBeNoneIs) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  cluster.SetConnectFault([](int rank, const RankSet& set) {
    return rank == 2 && set.number() == 2 ? ResourceExhaustedError("no memory")
                                          : OkStatus();
  });
  RunRanks(3, [&](int rank) {
    ProcessSets& sets = cluster.at(rank);
    EXPECT_THAT(sets.AddAll({{0, 1}, {1, 0}}).status().message(),
                HasSubstr("[0, 1]: is among these more than once"));
    EXPECT_THAT(sets.AddAll({{0, 1}, {0, 3}}).status().message(),
                HasSubstr("[0, 3]: the ranks of this job are 0 to 2"));
    EXPECT_EQ(sets.AddAll({{0, 1}, {1, 2}, {2}}).status(),
              UnavailableError("process set 2 (ranks 1-2) could not be made: "
                               "rank 2: no memory. So none of these 3 sets "
                               "was"));
    for (int64_t set = 1; set <= 3; ++set) {
      EXPECT_EQ(sets.RuntimeOf(set).status().code(),
                StatusCode::kFailedPrecondition);
    }
    EXPECT_THAT(*sets.AddAll({{0, 1}, {1, 2}}), ElementsAre(4, 5));
    float sum = 0;
    EXPECT_TRUE(Sum(cluster, rank, 0, "x", &sum).ok());
  });
}

TEST_P(ProcessSetsTest, DifferentListsAreToldApart) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  RunRanks(3, [&](int rank) {
    const Status status = cluster.at(rank)
                              .AddAll({{0, 1},
                                       rank == 1 ? std::vector<int32_t>{2}
                                                 : std::vector<int32_t>{1, 2}})
                              .status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("ranks 0, 2 call add_process_sets([[0, 1], [1, "
                                "2]])"),
                      HasSubstr("rank 1 calls add_process_sets([[0, 1], "
                                "[2]])")));
  });
  EXPECT_EQ(AddAll(cluster, {0, 1}), 1u);
}

// The ranks of each are compared, and not only the first of them.
TEST_P(ProcessSetsTest, LargeSetsAreToldApart) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  RunRanks(3, [&](int rank) {
    std::vector<int32_t> ranks(300000);
    std::iota(ranks.begin(), ranks.end(), 0);
    Status status = cluster.at(rank).Add(ranks).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "process set [0, 1, 2, 3, 4, 5, 6, 7, ..., 299999] of 300000 "
              "ranks: the ranks of this job are 0 to 2");
    if (rank == 1) ranks.back() += 1;
    status = cluster.at(rank).Add(ranks).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 calls add_process_set([0"));
    EXPECT_LT(status.message().size(), 4096u);
  });
}

TEST_P(ProcessSetsTest, AMemberThatCannotConnectIsNamedAndTheJobGoesOn) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  cluster.SetConnectFault([](int rank, const RankSet& set) {
    return rank == 2 && set.number() == 1 ? ResourceExhaustedError("no memory")
                                          : OkStatus();
  });
  RunRanks(3, [&](int rank) {
    EXPECT_EQ(cluster.at(rank).Add({1, 2}).status(),
              UnavailableError("process set 1 (ranks 1-2) could not be made: "
                               "rank 2: no memory"));
  });
  EXPECT_EQ(AddAll(cluster, {1, 2}), 2u);
  RunRanks(3, [&](int rank) {
    float sum = 0;
    EXPECT_TRUE(Sum(cluster, rank, 0, "x", &sum).ok());
  });
}

TEST_P(ProcessSetsTest, WhoIsNotAMemberIsTold) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  const uint32_t set = AddAll(cluster, {0, 2});
  const Status status = cluster.at(1).RuntimeOf(set).status();
  EXPECT_EQ(status, InvalidArgumentError("rank 1 is not a member of process "
                                         "set 1 (ranks 0, 2)"));
  EXPECT_EQ(cluster.at(1).Find(set)->members(), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(cluster.at(1).Find(0)->members(), (std::vector<int32_t>{0, 1, 2}));
}

// Ranks 1 and 2 wait in the set, rank 0 in the job; rank 2 is lost in the set
// alone.
TEST_P(ProcessSetsTest, ALossInASetBreaksTheJobWithTheSameWords) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  const uint32_t set = AddAll(cluster, {1, 2});
  const uint32_t other = AddAll(cluster, {0, 1});
  FloatOperation in_set, in_job, in_other;
  for (FloatOperation* each : {&in_set, &in_job, &in_other}) {
    each->input = {1.0f};
  }
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(1, set), "x", in_set).ok());
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(0, 0), "x", in_job).ok());
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(0, other), "x", in_other).ok());
  cluster.CutOff(1, set);  // its place in the set: rank 2
  const Status status = Await(in_set);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(),
              AnyOf(HasSubstr("lost rank 2"), HasSubstr("lost rank 1")));
  EXPECT_EQ(Await(in_job).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Await(in_other).code(), StatusCode::kUnavailable);
  for (int rank = 0; rank < 3; ++rank) {
    // A rank that waits for nothing hears of it a little later.
    while (cluster.at(rank).job()->status().ok()) std::this_thread::yield();
    const Status of_job = cluster.at(rank).job()->status();
    EXPECT_EQ(of_job.code(), StatusCode::kUnavailable);
    for (uint32_t number : {set, other}) {
      if (!cluster.at(rank).RuntimeOf(number).ok()) continue;
      // The set is told after the job.
      while (cluster.runtime(rank, number)->status().ok()) {
        std::this_thread::yield();
      }
      EXPECT_EQ(cluster.runtime(rank, number)->status(), of_job);
    }
  }
}

// Fault: somebody holds the runtime of a set when that of its job is gone,
// which would have told the set. A rank is lost then.
TEST_P(ProcessSetsTest, ASetWhoseJobIsGoneEndsByItself) {
  RuntimeClusterParts parts =
      ConnectRuntimes({"a", "a"}, Options(), setup(), RankSet(1, {1, 2}));
  std::vector<std::shared_ptr<Runtime>> runtimes;
  for (RuntimeDeps& deps : parts.deps) {
    deps.report_loss = [job = std::weak_ptr<Runtime>()](const Status&) {
      return job.lock() != nullptr;
    };
    runtimes.push_back(Runtime::Start(std::move(deps)).value());
  }
  FloatOperation waiting;
  waiting.input = {1.0f};
  ASSERT_TRUE(EnqueueSum(*runtimes[0], "x", waiting).ok());
  for (int fd : parts.control[1]) ASSERT_EQ(shutdown(fd, SHUT_RDWR), 0);
  EXPECT_EQ(Await(waiting).code(), StatusCode::kUnavailable);
  RunRanks(2, [&](int rank) { runtimes[rank]->Shutdown(""); });
}

TEST_P(ProcessSetsTest, ALossInTheJobBreaksItsSets) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  const uint32_t set = AddAll(cluster, {0, 1});
  FloatOperation in_set;
  in_set.input = {1.0f};
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(1, set), "x", in_set).ok());
  cluster.CutOff(2, 0);  // no member
  const Status status = Await(in_set);
  EXPECT_EQ(status, cluster.at(1).job()->status());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  // Nor can there be more.
  EXPECT_EQ(cluster.at(1).Add({0, 2}).status(), status);
}

TEST_P(ProcessSetsTest, SetsOfOthersOutliveARankThatLeaves) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  const uint32_t set = AddAll(cluster, {0, 1});
  const uint32_t with_2 = AddAll(cluster, {1, 2});
  FloatOperation pending;
  pending.input = {1.0f};
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(1, with_2), "x", pending).ok());
  cluster.at(2).Shutdown("");
  EXPECT_THAT(Await(pending).message(),
              HasSubstr("process set 2 (ranks 1-2) is over: rank 2 has removed "
                        "it or shut down"));
  while (cluster.at(1).job()->status().ok()) std::this_thread::yield();
  RunRanks(2, [&](int rank) {
    float sum = -1;
    EXPECT_TRUE(Sum(cluster, rank, set, "x", &sum).ok());
    EXPECT_EQ(sum, 1);
  });
  // A loss after the end of the job still reaches the sets. A link has two
  // ends, and the first to tell of it blames the other.
  FloatOperation waits;
  waits.input = {1.0f};
  ASSERT_TRUE(EnqueueSum(*cluster.runtime(0, set), "y", waits).ok());
  cluster.CutOff(1, set);
  EXPECT_THAT(Await(waits).message(),
              AnyOf(HasSubstr("lost rank 1"), HasSubstr("lost rank 0")));
}

TEST_P(ProcessSetsTest, AShutdownEndsAChangeThatWaits) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  std::thread waits([&] {
    EXPECT_EQ(cluster.at(0).Add({0, 1}).status().code(),
              StatusCode::kUnavailable);
  });
  cluster.at(0).Shutdown("");
  waits.join();
}

// Numbers grow for as long as a process lives; the tags of messages begin
// again.
TEST_P(ProcessSetsTest, NoTwoLivingSetsHaveOneTag) {
  std::vector<SetNumbers> numbers(3);
  ProcessSetsCluster cluster(kFlat, Options(), setup(), &numbers);
  EXPECT_EQ(AddAll(cluster, {0, 1}), 1u);
  EXPECT_EQ(AddAll(cluster, {1, 2}), 2u);
  // Many came and went.
  for (SetNumbers& each : numbers) each.Take(RankSet::kMaxTag - 1);
  const uint32_t last = AddAll(cluster, {0, 2});
  EXPECT_EQ(last, 32767u);
  RunRanks(cluster.size(), [&](int rank) {
    ASSERT_TRUE(cluster.at(rank).Remove(2).ok());
    // 32768 has the tag of 1, which lives, and 32769 that of 2, which does not.
    const auto next = cluster.at(rank).AddAll({{1}, {2}});
    ASSERT_TRUE(next.ok()) << next.status().ToString();
    EXPECT_THAT(*next, ElementsAre(32769, 32770));
    float sum = -1;
    if (rank == 1) return;
    EXPECT_TRUE(Sum(cluster, rank, last, "x", &sum).ok());
    EXPECT_EQ(sum, 2);
  });
}

TEST_P(ProcessSetsTest, AddedAndRemovedWhileOthersRun) {
  ProcessSetsCluster cluster(kFlat, Options(), setup());
  const uint32_t stays = AddAll(cluster, {0, 1});
  RunRanks(3, [&](int rank) {
    std::thread sums;
    if (rank < 2) {
      sums = std::thread([&] {
        for (int i = 0; i < 200; ++i) {
          float sum = -1;
          ASSERT_TRUE(Sum(cluster, rank, stays, "x", &sum).ok());
          ASSERT_EQ(sum, 1);
        }
      });
    }
    for (int i = 0; i < 10; ++i) {
      Result<uint32_t> number = cluster.at(rank).Add({2, 1});
      ASSERT_TRUE(number.ok()) << number.status().ToString();
      if (rank > 0) {
        float sum = -1;
        ASSERT_TRUE(Sum(cluster, rank, *number, "x", &sum).ok());
        ASSERT_EQ(sum, 3);
      }
      ASSERT_TRUE(cluster.at(rank).Remove(*number).ok());
    }
    if (sums.joinable()) sums.join();
  });
}

TEST(AllgatherStrings, GivesEveryRankAllTexts) {
  RuntimeCluster cluster(kFlat, Options());
  const std::vector<std::string> texts = {"zero", "", std::string(5000, '2')};
  RunRanks(3, [&](int rank) {
    auto gathered = AllgatherStrings(cluster.at(rank), "texts", texts[rank]);
    ASSERT_TRUE(gathered.ok()) << gathered.status().ToString();
    EXPECT_EQ(*gathered, texts);
  });
  cluster.ShutdownAll();
  EXPECT_EQ(AllgatherStrings(cluster.at(0), "texts", "").status().code(),
            StatusCode::kUnavailable);
}

TEST(ProcessRuntime, OneJobAtATime) {
  EXPECT_EQ(ProcessRuntime(), nullptr);
  EXPECT_EQ(ProcessRuntimeFor(0, "x").status().code(),
            StatusCode::kFailedPrecondition);
  ProcessSetsCluster cluster(kFlat, Options());
  ASSERT_TRUE(InstallProcessSets(cluster.shared(0)).ok());
  EXPECT_EQ(InstallProcessSets(cluster.shared(1)).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(ProcessRuntime(), cluster.at(0).job());
  EXPECT_EQ(TakeProcessSets(), cluster.shared(0));
  EXPECT_EQ(ProcessRuntime(), nullptr);
  ASSERT_TRUE(InstallProcessSets(cluster.shared(0)).ok()) << "free again";
  TakeProcessSets();
}

TEST(ProcessRuntime, ALookupFollowsItsSet) {
  ProcessSetsCluster cluster(kFlat, Options());
  ASSERT_TRUE(InstallProcessSets(cluster.shared(0)).ok());
  RuntimeLookup lookup(1);
  EXPECT_THAT(lookup.For("x").status().message(),
              AllOf(HasSubstr("collective 'x'"), HasSubstr("does not exist")));
  RunRanks(3, [&](int rank) {
    ASSERT_TRUE(cluster.at(rank).Add({0, 1}).ok());
  });
  std::weak_ptr<Runtime> runtime = *lookup.For("x");
  EXPECT_EQ(runtime.lock(), cluster.runtime(0, 1));
  EXPECT_EQ(*lookup.For("y"), cluster.runtime(0, 1));
  RunRanks(3, [&](int rank) { ASSERT_TRUE(cluster.at(rank).Remove(1).ok()); });
  EXPECT_TRUE(runtime.expired()) << "a lookup keeps nothing alive";
  EXPECT_EQ(lookup.For("x").status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(lookup.For("x").status().message(),
              HasSubstr("process set 1 has been removed"));
  TakeProcessSets();
}

// Its threads, and the memory that the ranks share, are not in the child of a
// fork. It knows its rank, and whatever it does, its parent goes on.
TEST(ProcessRuntime, AForkHasNoPartInTheJob) {
  ProcessSetsCluster cluster(kFlat, Options());
  ASSERT_TRUE(InstallProcessSets(cluster.shared(2)).ok());
  RuntimeLookup used(0), fresh(0);
  ASSERT_TRUE(used.For("x").ok());
  EXPECT_TRUE(CheckIsRank().ok());
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    if (ProcessRuntime()->topology().rank != 2) _exit(1);
    for (RuntimeLookup* lookup : {&used, &fresh}) {
      const Status status = lookup->For("x").status();
      if (status.code() != StatusCode::kFailedPrecondition) _exit(2);
      const std::string expected = "collective 'x': this process (pid " +
                                   std::to_string(getpid()) +
                                   ") was forked from rank 2,";
      if (status.message().rfind(expected, 0) != 0) _exit(3);
    }
    if (CheckIsRank().ok()) _exit(4);
    // Ends nothing, and then there is no job.
    if (TakeProcessSets() != nullptr || ProcessRuntime() != nullptr) _exit(5);
    if (!CheckIsRank().ok() || used.For("x").ok()) _exit(6);
    exit(0);
  }
  int state = 0;
  ASSERT_EQ(waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_TRUE(CheckIsRank().ok());
  EXPECT_TRUE(used.For("x").ok());
  TakeProcessSets();
  RunRanks(3, [&](int rank) {
    FloatOperation operation;
    operation.input = {float(rank)};
    ASSERT_TRUE(EnqueueSum(*cluster.runtime(rank, 0), "after", operation).ok());
    ASSERT_TRUE(Await(operation).ok());
    EXPECT_EQ(operation.output.front(), 3);
  });
}

}  // namespace
}  // namespace keras_ring
