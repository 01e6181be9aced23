// Elastic jobs whose ranks are threads, with an authority that does as it is
// told. That of the launcher is tested with ranks that are killed, in
// tests/multiprocess/elastic.
#include "csrc/runtime/elastic/elastic_job.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/runtime_cluster.h"

namespace keras_ring {
namespace {

// Below the generations of those that join, while they are alone.
constexpr int64_t kAlone = -1;
constexpr char kGroup[] = "weights";
const auto kGroupName = std::make_shared<const std::string>(kGroup);

// What the ranks of a job and their launcher share.
class Launcher {
 public:
  explicit Launcher(int size) : size_(size) {}

  // --- A rank ---

  void Report(int member, const MemberReport& report) {
    MutexLock lock(mutex_);
    reports_[member] = report;
    changed_.NotifyAll();
  }

  Result<NextGeneration> Await(int member, Deadline deadline,
                               const std::function<bool()>& stopped) {
    for (;;) {
      {
        MutexLock lock(mutex_);
        std::deque<Result<NextGeneration>>& inbox = inboxes_[member];
        changed_.WaitUntil(
            mutex_,
            std::min(deadline, Deadline::After(std::chrono::milliseconds(5)),
                     [](Deadline a, Deadline b) { return a.at() < b.at(); })
                .at(),
            [&]() KR_REQUIRES(mutex_) { return !inbox.empty(); });
        if (!inbox.empty()) {
          Result<NextGeneration> next = inbox.front();
          inbox.pop_front();
          return next;
        }
      }
      if (stopped()) return CancelledError("stopped");
      if (deadline.expired()) return DeadlineExceededError("too late");
    }
  }

  // Connects the ranks of a generation. The first that comes does it for all.
  Result<std::shared_ptr<ProcessSets>> Start(const Options& options,
                                             const LossHandling& on_loss) {
    RuntimeDeps deps;
    {
      MutexLock lock(mutex_);
      if (failing_.count(options.generation) != 0) {
        return UnavailableError("no rank 3");
      }
      RuntimeClusterParts& parts = parts_[options.generation];
      if (parts.deps.empty()) {
        parts = ConnectRuntimes(
            std::vector<std::string>(options.size, "a host"), Options(), {});
      }
      deps = std::move(parts.deps[options.rank]);
    }
    deps.on_loss = on_loss;
    KR_ASSIGN_OR_RETURN(std::shared_ptr<Runtime> runtime,
                        Runtime::Start(std::move(deps)));
    return std::make_shared<ProcessSets>(
        std::move(runtime),
        [](const RankSet&, Deadline) -> Result<RuntimeDeps> {
          return UnimplementedError("no sets");
        },
        numbers_);
  }

  // --- The test ---

  // Breaks the connections of a rank of a generation, as its death would.
  void CutOff(int64_t generation, int rank) {
    MutexLock lock(mutex_);
    for (int fd : parts_.at(generation).control[rank]) {
      KR_CHECK(shutdown(fd, SHUT_RDWR) == 0);
    }
  }

  // This generation cannot start.
  void FailToStart(int64_t generation) {
    MutexLock lock(mutex_);
    failing_.insert(generation);
  }

  // Waits for the reports of these members.
  std::vector<MemberReport> AwaitReports(const std::vector<int>& members) {
    MutexLock lock(mutex_);
    const bool there = changed_.WaitUntil(
        mutex_, Deadline::AfterSeconds(30).at(), [&]() KR_REQUIRES(mutex_) {
          return std::all_of(members.begin(), members.end(),
                             [&](int member) KR_REQUIRES(mutex_) {
                               return reports_.count(member) != 0;
                             });
        });
    KR_CHECK(there);
    std::vector<MemberReport> reports;
    for (int member : members) {
      reports.push_back(reports_[member]);
      reports_.erase(member);
    }
    return reports;
  }

  void Tell(int member, Result<NextGeneration> next) {
    MutexLock lock(mutex_);
    inboxes_[member].push_back(std::move(next));
    changed_.NotifyAll();
  }

  void Watch(int member, Membership::OnOver on_over) {
    MutexLock lock(mutex_);
    on_over_[member] = std::move(on_over);
  }

  // Says that a generation is over.
  void TellOver(int member, uint64_t generation) {
    Membership::OnOver on_over;
    {
      MutexLock lock(mutex_);
      on_over = on_over_.at(member);
    }
    on_over({generation, "the host of rank 1 is gone"});
  }

  // These go on, in this order.
  void GoOn(uint64_t generation, const std::vector<int>& members,
            StepOutcome outcome, uint64_t step = 0, bool admitted = false) {
    for (size_t rank = 0; rank < members.size(); ++rank) {
      NextGeneration next;
      next.generation = generation;
      next.admitted = admitted;
      next.rank = static_cast<int32_t>(rank);
      next.members.assign(members.begin(), members.end());
      next.settled = {{kGroup, step, outcome}};
      Tell(members[rank], next);
    }
  }

  int size() const { return size_; }

 private:
  const int size_;
  SetNumbers numbers_;
  Mutex mutex_;
  CondVar changed_;
  std::set<int64_t> failing_ KR_GUARDED_BY(mutex_);
  std::map<int64_t, RuntimeClusterParts> parts_ KR_GUARDED_BY(mutex_);
  std::map<int, MemberReport> reports_ KR_GUARDED_BY(mutex_);
  std::map<int, Membership::OnOver> on_over_ KR_GUARDED_BY(mutex_);
  std::map<int, std::deque<Result<NextGeneration>>> inboxes_
      KR_GUARDED_BY(mutex_);
};

class ToLauncher final : public Membership {
 public:
  ToLauncher(Launcher& launcher, int member)
      : launcher_(launcher), member_(member) {}
  Status Watch(OnOver on_over) override {
    launcher_.Watch(member_, std::move(on_over));
    return OkStatus();
  }
  void Stop() override {}
  Status Send(const MemberReport& report) override {
    launcher_.Report(member_, report);
    return OkStatus();
  }
  Result<NextGeneration> Await(Deadline deadline,
                               const std::function<bool()>& stopped) override {
    return launcher_.Await(member_, deadline, stopped);
  }
  uint64_t NumWaiting() override { return 0; }

 private:
  Launcher& launcher_;
  const int member_;
};

class ElasticJobTest : public testing::Test {
 protected:
  explicit ElasticJobTest(int size = 3, double start_timeout = 60)
      : launcher_(size) {
    for (int member = 0; member < size; ++member) {
      ElasticJob::Parts parts;
      parts.options.start_timeout = start_timeout;
      parts.options.rank = member;
      parts.options.size = size;
      StartMember(member, std::move(parts));
    }
  }
  ~ElasticJobTest() override {
    RunRanks(static_cast<int>(jobs_.size()),
             [this](int member) { jobs_[member]->Shutdown(""); });
  }

  // Starts another member, which joins the job.
  int StartJoining() {
    const int member = static_cast<int>(jobs_.size());
    ElasticJob::Parts parts;
    parts.joins_as = member;
    parts.options.generation = kAlone - member;
    StartMember(member, std::move(parts));
    return member;
  }

  void StartMember(int member, ElasticJob::Parts parts) {
    parts.start = [this](const Options& options, const LossHandling& loss) {
      return launcher_.Start(options, loss);
    };
    parts.publish = [](std::shared_ptr<ProcessSets>) {};
    parts.listen = [](const std::string&) { return Listen("127.0.0.1", 0); };
    jobs_.push_back(
        ElasticJob::Start(std::move(parts),
                          std::make_unique<ToLauncher>(launcher_, member))
            .value());
    EXPECT_TRUE(jobs_.back()->Watch().ok());
  }

  std::future<Status> Admit(int member) {
    return std::async(std::launch::async, [this, member] {
      return jobs_[member]->Admit(Deadline::AfterSeconds(30)).status();
    });
  }

  void ExpectAllIn(std::vector<std::future<Status>>& all) {
    for (std::future<Status>& admitted : all) {
      const Status status = admitted.get();
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    all.clear();
  }

  // Enqueues a sum of the step, or of none.
  Status Enqueue(int member, FloatOperation& sum, const std::string& name,
                 std::shared_ptr<const std::string> group = kGroupName,
                 ReduceOp op = ReduceOp::kSum) {
    Request request;
    request.name = name;
    request.kind = RequestKind::kAllreduce;
    request.op = op;
    return jobs_[member]->Enqueue(EntryOf(member, sum, request),
                                  std::move(group));
  }

  // Enqueues a broadcast, whose root is counted in a generation.
  Status Broadcast(int member, FloatOperation& operation, int root,
                   int64_t generation = ElasticJob::kPresent) {
    Request request;
    request.name = "b";
    request.kind = RequestKind::kBroadcast;
    request.root = root;
    return jobs_[member]->Enqueue(EntryOf(member, operation, request), nullptr,
                                  generation);
  }

  // Each member brings a value of its own.
  static TensorEntry EntryOf(int member, FloatOperation& operation,
                             Request request) {
    operation.input = {static_cast<float>(1 << member)};
    operation.output.assign(1, -1.0f);
    TensorSpec spec;
    spec.dtype = DType::kFloat32;
    spec.shape = {1};
    request.tensors.push_back(spec);
    TensorEntry entry;
    entry.request = std::make_shared<const Request>(std::move(request));
    entry.inputs = {operation.input.data()};
    entry.outputs = {operation.output.data()};
    entry.completion = Completion([&operation](const Status& status) {
      operation.finished.set_value(status);
    });
    return entry;
  }

  std::future<Result<bool>> Commit(int member) {
    auto answer = std::make_shared<std::promise<Result<bool>>>();
    std::future<Result<bool>> future = answer->get_future();
    const Status status =
        jobs_[member]->Commit(kGroup, [answer](const Result<bool>& committed) {
          answer->set_value(committed);
        });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return future;
  }

  // Runs a step of these members; returns the sum.
  float Step(const std::vector<int>& members) {
    std::vector<FloatOperation> sums(jobs_.size());
    for (int member : members) {
      EXPECT_TRUE(Enqueue(member, sums[member], "g").ok());
    }
    std::vector<std::future<Result<bool>>> commits;
    for (int member : members) {
      EXPECT_TRUE(Await(sums[member]).ok());
      commits.push_back(Commit(member));
    }
    for (auto& commit : commits) {
      const Result<bool> committed = commit.get();
      EXPECT_TRUE(committed.ok() && *committed);
    }
    return sums[members.front()].output.front();
  }

  Launcher launcher_;
  std::vector<std::unique_ptr<ElasticJob>> jobs_;
};

TEST_F(ElasticJobTest, WhatHasNotBegunGoesOnAmongThoseWhoAreLeft) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  FloatOperation early, late, plain_early, plain_late;
  ASSERT_TRUE(Enqueue(0, early, "g").ok());
  ASSERT_TRUE(Enqueue(0, plain_early, "p", nullptr).ok());
  launcher_.CutOff(0, 1);
  const auto reports = launcher_.AwaitReports({0, 2});
  EXPECT_EQ(reports[0].generation, 0u);
  EXPECT_EQ(reports[0].steps.front().settled, 1u);
  EXPECT_FALSE(reports[0].steps.front().begun);
  // While there is no generation.
  ASSERT_TRUE(Enqueue(2, late, "g").ok());
  ASSERT_TRUE(Enqueue(2, plain_late, "p", nullptr).ok());
  launcher_.GoOn(1, {0, 2}, StepOutcome::kOpen, 1);
  for (FloatOperation* sum : {&early, &late, &plain_early, &plain_late}) {
    ASSERT_TRUE(Await(*sum).ok());
    EXPECT_EQ(sum->output.front(), 5);
  }
  std::future<Result<bool>> of_0 = Commit(0), of_2 = Commit(2);
  EXPECT_TRUE(*of_0.get());
  EXPECT_TRUE(*of_2.get());
  EXPECT_EQ(Step({0, 2}), 5);
  // The next loss, of the rank that is rank 0.
  launcher_.CutOff(1, 0);
  launcher_.AwaitReports({2});
  launcher_.GoOn(2, {2}, StepOutcome::kOpen, 3);
  EXPECT_EQ(Step({2}), 4);
}

TEST_F(ElasticJobTest, LeavesAGenerationOfWhichTheLauncherSaysThatItIsOver) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  FloatOperation of_0;
  ASSERT_TRUE(Enqueue(0, of_0, "g").ok());
  // Rank 1 is silent, which no rank could see for a while.
  launcher_.TellOver(0, 0);
  launcher_.TellOver(2, 0);
  const auto reports = launcher_.AwaitReports({0, 2});
  EXPECT_EQ(reports[0].cause, "the host of rank 1 is gone");
  launcher_.GoOn(1, {0, 2}, StepOutcome::kOpen, 1);
  FloatOperation of_2;
  ASSERT_TRUE(Enqueue(2, of_2, "g").ok());
  ASSERT_TRUE(Await(of_0).ok());
  EXPECT_EQ(of_0.output.front(), 5);
  EXPECT_TRUE(Await(of_2).ok());
  std::future<Result<bool>> commit = Commit(0);
  EXPECT_TRUE(*Commit(2).get());
  EXPECT_TRUE(*commit.get());
  // It speaks of one that they have left, which is none of theirs.
  launcher_.TellOver(0, 0);
  EXPECT_EQ(Step({0, 2}), 5);
  // And of one that has not begun yet.
  launcher_.CutOff(1, 1);
  launcher_.AwaitReports({0});
  launcher_.TellOver(0, 2);
  launcher_.GoOn(2, {0}, StepOutcome::kOpen, 3);
  launcher_.AwaitReports({0});
  launcher_.GoOn(3, {0}, StepOutcome::kOpen, 3);
  EXPECT_EQ(Step({0}), 1);
}

class ImpatientJobTest : public ElasticJobTest {
 protected:
  ImpatientJobTest() : ElasticJobTest(2, /*start_timeout=*/4) {}
};

TEST_F(ImpatientJobTest, EndsIfNoGenerationCanStart) {
  EXPECT_EQ(Step({0, 1}), 3);
  for (int generation : {1, 2, 3}) launcher_.FailToStart(generation);
  launcher_.CutOff(0, 1);
  FloatOperation waits;
  ASSERT_TRUE(Enqueue(0, waits, "g").ok());
  // Each time in time, and in all for longer than a job may take to start.
  for (int generation : {1, 2, 3}) {
    launcher_.AwaitReports({0});
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));
    launcher_.GoOn(generation, {0}, StepOutcome::kOpen, 1);
  }
  const Status status = Await(waits);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("cannot go on, after 3 tries: no rank 3"),
            std::string::npos)
      << status.message();
}

TEST_F(ElasticJobTest, ADiscardedStepEndsAloneOnEachRank) {
  std::vector<FloatOperation> first(3);
  for (int member = 0; member < 3; ++member) {
    ASSERT_TRUE(Enqueue(member, first[member], "g").ok());
  }
  for (FloatOperation& sum : first) ASSERT_TRUE(Await(sum).ok());
  // One waits for the commit, the other one has more to sum.
  std::future<Result<bool>> of_0 = Commit(0);
  FloatOperation waits;
  ASSERT_TRUE(Enqueue(2, waits, "h").ok());
  launcher_.CutOff(0, 1);
  const auto reports = launcher_.AwaitReports({0, 2});
  EXPECT_TRUE(reports[0].steps.front().whole);
  EXPECT_TRUE(reports[1].steps.front().begun);
  EXPECT_FALSE(reports[1].steps.front().whole);
  launcher_.GoOn(1, {0, 2}, StepOutcome::kDiscarded);
  EXPECT_FALSE(*of_0.get());
  EXPECT_TRUE(Await(waits).ok());
  FloatOperation later;
  ASSERT_TRUE(Enqueue(2, later, "i").ok());
  EXPECT_TRUE(Await(later).ok());
  EXPECT_EQ(later.output.front(), -1);  // nothing was run
  EXPECT_FALSE(*Commit(2).get());
  EXPECT_EQ(Step({0, 2}), 5);
}

TEST_F(ElasticJobTest, WhoWaitsForTheCommitIsTold) {
  std::vector<FloatOperation> sums(3);
  for (int member = 0; member < 3; ++member) {
    ASSERT_TRUE(Enqueue(member, sums[member], "g").ok());
  }
  for (FloatOperation& sum : sums) ASSERT_TRUE(Await(sum).ok());
  std::future<Result<bool>> of_0 = Commit(0), of_2 = Commit(2);
  launcher_.CutOff(0, 1);
  launcher_.AwaitReports({0, 2});
  launcher_.GoOn(1, {0, 2}, StepOutcome::kCommitted);
  EXPECT_TRUE(*of_0.get());
  EXPECT_TRUE(*of_2.get());
  EXPECT_EQ(Step({0, 2}), 5);
}

TEST_F(ElasticJobTest, TheRootOfABroadcastStaysTheSameProcess) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  FloatOperation early, late;
  ASSERT_TRUE(Broadcast(0, early, 2).ok());
  launcher_.CutOff(0, 1);
  launcher_.AwaitReports({0, 2});
  launcher_.GoOn(1, {0, 2}, StepOutcome::kOpen, 1);
  EXPECT_EQ(Step({0, 2}), 5);
  // It is counted as it was, and as it is now.
  ASSERT_TRUE(Broadcast(2, late, 2, 0).ok());
  for (FloatOperation* each : {&early, &late}) {
    ASSERT_TRUE(Await(*each).ok());
    EXPECT_EQ(each->output.front(), 4);
  }
  FloatOperation of_0, of_2;
  ASSERT_TRUE(Broadcast(0, of_0, 1).ok());
  ASSERT_TRUE(Broadcast(2, of_2, 1).ok());
  for (FloatOperation* each : {&of_0, &of_2}) {
    ASSERT_TRUE(Await(*each).ok());
    EXPECT_EQ(each->output.front(), 4);
  }
}

TEST_F(ElasticJobTest, ABroadcastWhoseRootIsLostIsAborted) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  FloatOperation waits;
  ASSERT_TRUE(Broadcast(2, waits, 0).ok());
  launcher_.CutOff(0, 0);
  launcher_.AwaitReports({1, 2});
  launcher_.GoOn(1, {1, 2}, StepOutcome::kOpen, 1);
  EXPECT_EQ(Await(waits).code(), StatusCode::kAborted);
  EXPECT_EQ(Step({1, 2}), 6);
  FloatOperation late;
  EXPECT_EQ(Broadcast(1, late, 0, 0).code(), StatusCode::kAborted);
  // Who is rank 0 now has not been meant by either.
  FloatOperation of_1, of_2;
  ASSERT_TRUE(Broadcast(1, of_1, 0).ok());
  ASSERT_TRUE(Broadcast(2, of_2, 0, 1).ok());
  for (FloatOperation* each : {&of_1, &of_2}) {
    ASSERT_TRUE(Await(*each).ok());
    EXPECT_EQ(each->output.front(), 2);
  }
}

TEST_F(ElasticJobTest, RanksTellEachOtherWhenTheyGoOn) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  for (int member = 0; member < 3; ++member) {
    const std::string text = "of " + std::to_string(member);
    ASSERT_TRUE(jobs_[member]->Tell("batch", "before", 0).ok());
    ASSERT_TRUE(jobs_[member]->Tell("batch", text, 0).ok());
    EXPECT_TRUE(jobs_[member]->ToldAfter(-1, "batch").empty());
  }
  ASSERT_TRUE(jobs_[2]->Tell("more", std::string("\0x", 2), 0).ok());
  launcher_.CutOff(0, 1);
  launcher_.AwaitReports({0, 2});
  launcher_.GoOn(1, {0, 2}, StepOutcome::kOpen, 1);
  EXPECT_EQ(Step({0, 2}), 5);
  for (int member : {0, 2}) {
    const std::vector<ElasticJob::Told> told =
        jobs_[member]->ToldAfter(0, "batch");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].generation, 1);
    EXPECT_EQ(told[0].members, (std::vector<int32_t>{0, 2}));
    EXPECT_EQ(told[0].texts, (std::vector<std::string>{"of 0", "of 2"}));
    EXPECT_EQ(jobs_[member]->ToldAfter(0, "more")[0].texts,
              (std::vector<std::string>{"", std::string("\0x", 2)}));
    EXPECT_TRUE(jobs_[member]->ToldAfter(1, "batch").empty());
    // Who has read the topology before that must read it again.
    EXPECT_EQ(jobs_[member]->Tell("batch", "late", 0).code(),
              StatusCode::kAborted);
    EXPECT_TRUE(jobs_[member]->Tell("batch", "in time", 1).ok());
  }
}

TEST_F(ElasticJobTest, CountsHowStepsEnd) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  EXPECT_EQ(jobs_[0]->steps().committed, 1u);
  std::vector<FloatOperation> sums(3);
  for (int member = 0; member < 3; ++member) {
    ASSERT_TRUE(Enqueue(member, sums[member], "g").ok());
  }
  for (FloatOperation& sum : sums) ASSERT_TRUE(Await(sum).ok());
  std::future<Result<bool>> of_0 = Commit(0), of_2 = Commit(2);
  launcher_.CutOff(0, 1);
  launcher_.AwaitReports({0, 2});
  launcher_.GoOn(1, {0, 2}, StepOutcome::kCommitted, 1);
  EXPECT_TRUE(*of_0.get());
  EXPECT_TRUE(*of_2.get());
  // It has the share of the rank that was lost.
  EXPECT_EQ(jobs_[2]->steps().committed, 2u);
  EXPECT_EQ(jobs_[2]->steps().generation, 0);
  EXPECT_EQ(Step({0, 2}), 5);
  EXPECT_EQ(jobs_[2]->steps().generation, 1);
  // One has asked for the commit, the other one has not.
  FloatOperation last_of_0, last_of_2;
  ASSERT_TRUE(Enqueue(0, last_of_0, "g").ok());
  ASSERT_TRUE(Enqueue(2, last_of_2, "g").ok());
  ASSERT_TRUE(Await(last_of_0).ok());
  ASSERT_TRUE(Await(last_of_2).ok());
  of_0 = Commit(0);
  launcher_.CutOff(1, 1);
  launcher_.AwaitReports({0});
  launcher_.GoOn(2, {0}, StepOutcome::kDiscarded, 3);
  EXPECT_FALSE(*of_0.get());
  EXPECT_EQ(jobs_[0]->steps().committed, 3u);
  EXPECT_EQ(jobs_[0]->steps().discarded, 1u);
}

TEST_F(ElasticJobTest, EndsWithTheReason) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  FloatOperation waits;
  ASSERT_TRUE(Enqueue(0, waits, "g").ok());
  launcher_.CutOff(0, 1);
  launcher_.AwaitReports({0, 2});
  for (int member : {0, 2}) {
    launcher_.Tell(member, UnavailableError("too few ranks are left"));
  }
  const Status status = Await(waits);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "too few ranks are left");
  FloatOperation later;
  EXPECT_EQ(Enqueue(0, later, "h"), status);
}

TEST_F(ElasticJobTest, AMistakeIsToldToTheProgram) {
  std::vector<FloatOperation> sums(3);
  for (int member = 0; member < 3; ++member) {
    ASSERT_TRUE(Enqueue(member, sums[member], "g", kGroupName,
                        member == 1 ? ReduceOp::kMax : ReduceOp::kSum)
                    .ok());
  }
  for (FloatOperation& sum : sums) {
    EXPECT_EQ(Await(sum).code(), StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(Step({0, 1, 2}), 7);
}

TEST_F(ElasticJobTest, ARankThatLeavesEndsTheJob) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  FloatOperation plain, of_step;
  ASSERT_TRUE(Enqueue(0, plain, "p", nullptr).ok());
  ASSERT_TRUE(Enqueue(2, of_step, "g").ok());
  jobs_[1]->Shutdown("its program has failed");
  for (FloatOperation* sum : {&plain, &of_step}) {
    const Status status = Await(*sum);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("its program has failed"),
              std::string::npos);
  }
  FloatOperation later;
  EXPECT_EQ(Enqueue(0, later, "p", nullptr).code(), StatusCode::kUnavailable);
}

TEST_F(ElasticJobTest, ShutsDownWhileItChanges) {
  FloatOperation waits;
  ASSERT_TRUE(Enqueue(0, waits, "g").ok());
  std::future<Result<bool>> commit = Commit(2);
  launcher_.CutOff(0, 1);
  launcher_.AwaitReports({0, 2});
  RunRanks(3, [this](int member) { jobs_[member]->Shutdown(""); });
  EXPECT_FALSE(Await(waits).ok());
  EXPECT_FALSE(commit.get().ok());
}

TEST_F(ElasticJobTest, LetsInWhoWaits) {
  EXPECT_EQ(Step({0, 1, 2}), 7);
  // A name that who comes in has not used.
  std::vector<FloatOperation> before(3);
  for (int member : {0, 1, 2}) {
    ASSERT_TRUE(Enqueue(member, before[member], "p", nullptr).ok());
  }
  for (FloatOperation& sum : before) ASSERT_TRUE(Await(sum).ok());
  const int other = StartJoining();
  EXPECT_TRUE(jobs_[other]->IsWaiting());
  EXPECT_FALSE(jobs_[0]->IsWaiting());
  for (uint64_t step = 0; step < ElasticJob::kMostStepsAlone; ++step) {
    EXPECT_EQ(Step({other}), 8);
  }
  const Status trains = jobs_[other]->Commit(
      kGroup, [](const Result<bool>&) { ADD_FAILURE() << "it trains alone"; });
  EXPECT_EQ(trains.code(), StatusCode::kFailedPrecondition);

  std::vector<std::future<Status>> all;
  for (int member : {0, 1, 2, other}) all.push_back(Admit(member));
  const auto reports = launcher_.AwaitReports({0, 1, 2, other});
  for (int member : {0, 1, 2}) {
    EXPECT_EQ(reports[member].stand, MemberStand::kAdmits);
    EXPECT_EQ(reports[member].steps.front().settled, 1u);
  }
  EXPECT_EQ(reports.back().stand, MemberStand::kJoins);
  launcher_.GoOn(1, {0, 1, 2, other}, StepOutcome::kOpen, 1, true);
  ExpectAllIn(all);
  EXPECT_FALSE(jobs_[other]->IsWaiting());
  EXPECT_EQ(Step({0, 1, 2, other}), 15);

  // It is a rank as others are: here it lacks a result. That of the same name
  // from before is not meant.
  FloatOperation early;
  std::vector<FloatOperation> late(3);
  ASSERT_TRUE(Enqueue(other, early, "p", nullptr).ok());
  launcher_.CutOff(1, 1);
  EXPECT_EQ(launcher_.AwaitReports({0, 2, other}).back().steps.front().settled,
            2u);
  launcher_.GoOn(2, {0, 2, other}, StepOutcome::kOpen, 2);
  for (int member : {0, 2}) {
    ASSERT_TRUE(Enqueue(member, late[member], "p", nullptr).ok());
  }
  ASSERT_TRUE(Await(early).ok());
  EXPECT_EQ(early.output.front(), 13);
  for (int member : {0, 2}) ASSERT_TRUE(Await(late[member]).ok());
  EXPECT_EQ(Step({0, 2, other}), 13);
}

TEST_F(ElasticJobTest, ARankMayBeLostWhileOthersAreLetIn) {
  const int other = StartJoining();
  std::vector<std::future<Status>> all;
  all.push_back(Admit(0));
  all.push_back(Admit(other));
  EXPECT_EQ(launcher_.AwaitReports({0}).front().stand, MemberStand::kAdmits);
  // Rank 2 is in its step yet.
  launcher_.CutOff(0, 1);
  EXPECT_EQ(launcher_.AwaitReports({2}).front().stand, MemberStand::kLeft);
  launcher_.GoOn(1, {0, 2}, StepOutcome::kOpen);
  EXPECT_EQ(launcher_.AwaitReports({0}).front().generation, 1u);
  all.push_back(Admit(2));
  launcher_.AwaitReports({2, other});
  launcher_.GoOn(2, {0, 2, other}, StepOutcome::kOpen, 0, true);
  ExpectAllIn(all);
  EXPECT_EQ(Step({0, 2, other}), 13);
}

TEST_F(ElasticJobTest, TriesAgainWithoutWhomItWasToLetIn) {
  const int other = StartJoining();
  std::vector<std::future<Status>> all;
  for (int member : {0, 1, 2}) all.push_back(Admit(member));
  launcher_.AwaitReports({0, 1, 2});
  // The other one has ended meanwhile.
  launcher_.FailToStart(1);
  launcher_.GoOn(1, {0, 1, 2, other}, StepOutcome::kOpen, 0, true);
  for (const MemberReport& report : launcher_.AwaitReports({0, 1, 2})) {
    // Others may have begun it, and are in their next step.
    EXPECT_EQ(report.stand, MemberStand::kLeft);
    EXPECT_EQ(report.generation, 1u);
  }
  launcher_.GoOn(2, {0, 1, 2}, StepOutcome::kOpen);
  ExpectAllIn(all);
  EXPECT_EQ(Step({0, 1, 2}), 7);
}

TEST_F(ElasticJobTest, WhoLetsOthersInNoticesALoss) {
  std::vector<std::future<Status>> all;
  all.push_back(Admit(0));
  EXPECT_EQ(launcher_.AwaitReports({0}).front().stand, MemberStand::kAdmits);
  launcher_.CutOff(0, 1);
  const auto reports = launcher_.AwaitReports({0, 2});
  EXPECT_EQ(reports[0].stand, MemberStand::kLeft);
  EXPECT_EQ(reports[0].generation, 0u);
  launcher_.GoOn(1, {0, 2}, StepOutcome::kOpen);
  // As it was asked to.
  EXPECT_EQ(launcher_.AwaitReports({0}).front().stand, MemberStand::kAdmits);
  all.push_back(Admit(2));
  launcher_.AwaitReports({2});
  launcher_.GoOn(2, {0, 2}, StepOutcome::kOpen, 0, true);
  ExpectAllIn(all);
  EXPECT_EQ(Step({0, 2}), 5);
}

TEST_F(ElasticJobTest, WhatItHasToldAloneIsForgotten) {
  const int other = StartJoining();
  ASSERT_TRUE(jobs_[other]->Tell("k", "alone", kAlone - other).ok());
  ASSERT_TRUE(jobs_[0]->Tell("k", "of 0", 0).ok());
  std::vector<std::future<Status>> all;
  for (int member : {0, 1, 2, other}) all.push_back(Admit(member));
  launcher_.AwaitReports({0, 1, 2, other});
  launcher_.GoOn(1, {0, 1, 2, other}, StepOutcome::kOpen, 0, true);
  ExpectAllIn(all);
  for (const auto& job : jobs_) {
    const std::vector<ElasticJob::Told> told = job->ToldAfter(0, "k");
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].texts, (std::vector<std::string>{"of 0", "", "", ""}));
  }
}

TEST_F(ElasticJobTest, AWaitToBeLetInEndsWithTheJob) {
  const int other = StartJoining();
  std::future<Status> waits = Admit(other), admits = Admit(0);
  launcher_.AwaitReports({0, other});
  const auto soon = [] { return Deadline::AfterSeconds(0.01); };
  EXPECT_FALSE(*jobs_[other]->Admit(soon()));
  launcher_.Tell(other, UnavailableError("all ranks have ended"));
  EXPECT_EQ(waits.get().message(), "all ranks have ended");
  EXPECT_EQ(jobs_[other]->Admit(soon()).status().code(),
            StatusCode::kUnavailable);
  RunRanks(3, [this](int member) { jobs_[member]->Shutdown(""); });
  EXPECT_EQ(admits.get().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace keras_ring
