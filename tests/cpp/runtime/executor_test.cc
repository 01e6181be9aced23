#include "csrc/runtime/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <thread>

#include "csrc/base/deadline.h"
#include "csrc/comm/net/socket.h"
#include "csrc/testing/controller_cluster.h"
#include "csrc/testing/fake_collective.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"

namespace keras_ring {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kInlineBytes = 100;

// How an entry ended, and on which thread.
struct End {
  std::string name;
  Status status;
  std::thread::id thread;
};

class ExecutorTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(executor_.Start().ok()); }
  void TearDown() override {
    collective_.Release();
    executor_.Abort(AbortedError("the test is over"));
    executor_.Stop();
  }

  // A bucket of one operation on `count` floats.
  Bucket New(const std::string& name, int64_t count,
             RequestKind kind = RequestKind::kAllreduce) {
    buffers_.emplace_back(count);
    std::vector<float>& buffer = buffers_.back();
    TensorEntry entry;
    auto request = std::make_shared<Request>(AllreduceRequest(name, count));
    request->kind = kind;
    entry.request = request;
    entry.inputs = {buffer.data()};
    entry.outputs = {buffer.data()};
    entry.allocate = [&buffer](int, int64_t) -> Result<void*> {
      return static_cast<void*>(buffer.data());
    };
    entry.submitted = std::chrono::steady_clock::now();
    entry.completion = Completion([this, name](const Status& status) {
      MutexLock lock(mutex_);
      ends_.push_back(End{name, status, std::this_thread::get_id()});
      changed_.NotifyAll();
    });
    Bucket bucket;
    bucket.decided = entry.submitted;
    auto agreed = std::make_shared<Response>();
    agreed->request = *request;
    agreed->rows = {count};
    bucket.command.items.push_back(std::move(agreed));
    bucket.entries.push_back(std::move(entry));
    return bucket;
  }
  Bucket Small(const std::string& name) { return New(name, 4); }
  Bucket Large(const std::string& name) { return New(name, 1000); }

  // What the control thread of these tests does besides.
  void Run(Bucket bucket) { executor_.RunOrPush(std::move(bucket), progress_); }

  std::vector<End> ends() {
    MutexLock lock(mutex_);
    return ends_;
  }
  std::vector<std::string> EndedNames() {
    std::vector<std::string> names;
    for (const End& end : ends()) names.push_back(end.name);
    return names;
  }
  bool AwaitEnds(size_t count) {
    MutexLock lock(mutex_);
    return changed_.WaitUntil(
        mutex_, Deadline::AfterSeconds(20).at(),
        [&]() KR_REQUIRES(mutex_) { return ends_.size() >= count; });
  }
  int failures() const { return failures_; }

  Counters counters_;
  FakeCollective collective_{0, kInlineBytes};
  std::function<void()> progress_ = [] {};
  std::atomic<int> executed_{0};
  std::atomic<int> failures_{0};
  Status failure_;  // the last one reported
  Executor executor_{0, 1, collective_, counters_,
                     Executor::Callbacks{[this] { ++executed_; },
                                         [this](const Status& status) {
                                           failure_ = status;
                                           ++failures_;
                                         }}};

  Mutex mutex_;
  CondVar changed_;
  std::vector<End> ends_ KR_GUARDED_BY(mutex_);
  std::deque<std::vector<float>> buffers_;
};

TEST_F(ExecutorTest, ASmallBucketRunsOnTheCallingThread) {
  Run(Small("a"));
  Run(New("at the limit", kInlineBytes / 4));
  Run(New("empty", 0));
  // Over when RunOrPush returns.
  const std::vector<End> ended = ends();
  ASSERT_EQ(ended.size(), 3u);
  for (const End& end : ended) {
    EXPECT_TRUE(end.status.ok());
    EXPECT_EQ(end.thread, std::this_thread::get_id());
  }
  EXPECT_EQ(collective_.calls()[0].thread, std::this_thread::get_id());
  EXPECT_EQ(executed_, 3);
  EXPECT_EQ(counters_.buckets, 3u);
}

// Whether the buckets run on this thread or wait for another's.
TEST_F(ExecutorTest, WhatIsTunedCountsFromTheNextBucketOn) {
  const auto tune = [this](int64_t value) {
    TuneCommand command;
    command.tunable = Tunable::kOneShotBytes;
    command.value = value;
    executor_.Tune(command);
  };
  Run(Small("a"));
  tune(1);
  Run(Small("b"));
  collective_.Block();
  tune(2);
  Run(Large("c"));
  tune(3);
  Run(Small("d"));  // behind it
  tune(4);
  tune(5000);  // more than it takes
  Run(Large("e"));
  collective_.Release();
  ASSERT_TRUE(AwaitEnds(5));
  // Behind the last one, if its thread has not put everything away yet.
  Run(Small("f"));
  ASSERT_TRUE(AwaitEnds(6));
  std::vector<int64_t> found;
  for (const auto& call : collective_.calls()) {
    found.push_back(call.one_shot_bytes);
  }
  EXPECT_THAT(found, ElementsAre(0, 1, 2, 3, 1000, 1000));
}

TEST_F(ExecutorTest, WhatTheRequestSaysReachesTheCollective) {
  Bucket bucket = Small("a");
  auto request = std::make_shared<Request>(*bucket.entries[0].request);
  request->op = ReduceOp::kAverage;
  request->prescale = 2.0;
  request->postscale = 3.0;
  request->compression = Compression::kFloat16;
  bucket.entries[0].request = request;
  Run(std::move(bucket));
  const AllreduceArgs args = collective_.calls()[0].allreduce;
  EXPECT_EQ(args.dtype, DType::kFloat32);
  EXPECT_EQ(args.op, ReduceOp::kAverage);
  EXPECT_EQ(args.prescale, 2.0);
  EXPECT_EQ(args.postscale, 3.0);
  EXPECT_EQ(args.divisor, 1);
  EXPECT_EQ(args.compression, Compression::kFloat16);
  EXPECT_EQ(args.wire_dtype(), DType::kFloat16);
}

// Rank 1 of three, of which it or others have joined.
TEST_F(ExecutorTest, AveragesAreOfTheRanksThatBringSomething) {
  Executor executor{1, 3, collective_, counters_,
                    Executor::Callbacks{[] {}, [](const Status&) {}}};
  auto run = [&](const std::vector<int32_t>& joined) {
    Bucket bucket = Small("a");
    Response agreed = *bucket.command.items[0];
    agreed.request.op = ReduceOp::kAverage;
    bucket.command.items = {std::make_shared<const Response>(agreed)};
    bucket.command.joined = JoinedRanks(joined);
    if (bucket.command.joined.Contains(1)) {
      bucket.entries[0].completion.Disarm();
      bucket.entries.clear();
    } else {
      bucket.entries[0].request = RequestPtr(bucket.command.items[0],
                                             &bucket.command.items[0]->request);
    }
    executor.RunOrPush(std::move(bucket), progress_);
    const AllreduceArgs args = collective_.calls().back().allreduce;
    EXPECT_EQ(args.op, ReduceOp::kAverage);
    EXPECT_EQ(args.tensors[0].count, 4);
    return args.divisor;
  };
  EXPECT_EQ(run({}), 3);
  EXPECT_EQ(run({0}), 2);
  EXPECT_EQ(run({0, 2}), 1);
  EXPECT_EQ(run({1}), 2);
  // Its own stood in.
  EXPECT_EQ(ends().size(), 3u);
}

TEST_F(ExecutorTest, ALargeBucketAndAnAllgatherGoToTheDataThread) {
  Run(New("over the limit", kInlineBytes / 4 + 1));
  Run(New("gather", 1, RequestKind::kAllgather));
  ASSERT_TRUE(AwaitEnds(2));
  for (const End& end : ends()) {
    EXPECT_TRUE(end.status.ok());
    EXPECT_NE(end.thread, std::this_thread::get_id());
  }
}

// Small members of one bucket count together.
TEST_F(ExecutorTest, TheWholeBucketCounts) {
  Bucket bucket = New("a", 20);
  Bucket other = New("b", 20);
  bucket.entries.push_back(std::move(other.entries.front()));
  bucket.command.items.push_back(other.command.items.front());
  Run(std::move(bucket));
  ASSERT_TRUE(AwaitEnds(2));
  EXPECT_NE(ends()[0].thread, std::this_thread::get_id());
}

TEST_F(ExecutorTest, NothingOvertakes) {
  collective_.Block();
  Run(Large("running"));
  ASSERT_TRUE(collective_.AwaitCalls(1));
  Run(Small("behind the running one"));  // must not wait here
  Run(Large("queued"));
  Run(Small("behind the queued one"));
  EXPECT_TRUE(ends().empty());
  collective_.Release();
  ASSERT_TRUE(AwaitEnds(4));
  EXPECT_THAT(EndedNames(), ElementsAre("running", "behind the running one",
                                        "queued", "behind the queued one"));
  for (const End& end : ends()) {
    EXPECT_NE(end.thread, std::this_thread::get_id());
  }
}

TEST_F(ExecutorTest, WhenTheDataThreadIsIdleSmallOnesRunHereAgain) {
  Run(Large("large"));
  const Deadline deadline = Deadline::AfterSeconds(20);
  size_t count = 1;
  do {
    Run(Small("small"));
    ASSERT_TRUE(AwaitEnds(++count));
  } while (ends().back().thread != std::this_thread::get_id() &&
           !deadline.expired());
  EXPECT_EQ(ends().back().thread, std::this_thread::get_id());
}

// Small and large at random: they end in the order in which they came, and
// calls never overlap, whoever makes them.
TEST_F(ExecutorTest, TheOrderIsKeptWhoeverRunsThem) {
  std::vector<std::string> names;
  for (int i = 0; i < 2000; ++i) {
    names.push_back(std::to_string(i));
    Run(i * 7 % 5 < 2 ? Large(names.back()) : Small(names.back()));
    if (i % 3 != 0) continue;
    ASSERT_TRUE(AwaitEnds(i));
  }
  ASSERT_TRUE(AwaitEnds(names.size()));
  EXPECT_EQ(EndedNames(), names);
  int here = 0;
  for (const End& end : ends()) {
    here += end.thread == std::this_thread::get_id();
  }
  EXPECT_GT(here, 0);
  EXPECT_LT(here, 2000);
}

// A thread that begins to run must not forget what has begun meanwhile.
TEST(Executor, BucketsRightAfterTheStart) {
  for (int round = 0; round < 300; ++round) {
    FakeCollective collective(0, kInlineBytes);
    Counters counters;
    Executor executor(0, 1, collective, counters,
                      Executor::Callbacks{[] {}, [](const Status&) {}});
    ASSERT_TRUE(executor.Start().ok());
    float value = 1.0f;
    std::vector<float> values(1000, 1.0f);
    std::vector<int> ended;
    for (int i = 0; i < 4; ++i) {
      TensorEntry entry;
      entry.request = std::make_shared<const Request>(
          AllreduceRequest("x", i % 2 == 0 ? 1 : 1000));
      entry.inputs = {i % 2 == 0 ? &value : values.data()};
      entry.outputs = {i % 2 == 0 ? &value : values.data()};
      entry.completion =
          Completion([&ended, i](const Status&) { ended.push_back(i); });
      Bucket bucket;
      auto agreed = std::make_shared<Response>();
      agreed->request = *entry.request;
      bucket.command.items.push_back(std::move(agreed));
      bucket.entries.push_back(std::move(entry));
      executor.RunOrPush(std::move(bucket), [] {});
    }
    executor.Stop();
    ASSERT_THAT(ended, ElementsAre(0, 1, 2, 3));
  }
}

TEST_F(ExecutorTest, DutiesAreDoneWhileItWaits) {
  collective_.Block();
  int done = 0;
  progress_ = [&] {
    if (++done == 3) collective_.Release();
  };
  Run(Small("a"));
  EXPECT_EQ(done, 3);
  // They are the calling thread's: the data thread has none.
  collective_.Block();
  Run(Large("b"));
  ASSERT_TRUE(collective_.AwaitCalls(2));
  Pause(std::chrono::milliseconds(10), Deadline::AfterSeconds(1));
  EXPECT_EQ(done, 3);
}

// The thread that runs it must hear its peers, or nobody would learn the cause.
TEST_F(ExecutorTest, AFailureHereDoesNotBlockTheCaller) {
  collective_.Fail(UnavailableError("rank 1 closed the connection"));
  Run(Small("a"));
  Run(Small("b"));
  EXPECT_TRUE(ends().empty());
  EXPECT_EQ(failures(), 1);
  EXPECT_THAT(failure_.message(), HasSubstr("allreduce 'a'"));
  EXPECT_THAT(failure_.message(), HasSubstr("rank 1 closed"));
  Run(Large("c"));
  const Status cause = UnavailableError("lost rank 3");
  executor_.Abort(cause);
  ASSERT_TRUE(AwaitEnds(3));
  for (const End& end : ends()) EXPECT_EQ(end.status, cause);
  EXPECT_EQ(failures(), 1);
  EXPECT_EQ(executed_, 0);
}

TEST_F(ExecutorTest, AbortWhileItRunsHere) {
  collective_.Block();
  const Status cause = UnavailableError("lost rank 3");
  progress_ = [&] { executor_.Abort(cause); };
  Run(Small("a"));
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_EQ(ends()[0].status, cause);
  Run(Small("later"));
  Run(Large("later, too"));
  ASSERT_EQ(ends().size(), 3u);
  for (const End& end : ends()) EXPECT_EQ(end.status, cause);
}

TEST_F(ExecutorTest, AbortWhileTheDataThreadRuns) {
  collective_.Block();
  Run(Large("running"));
  ASSERT_TRUE(collective_.AwaitCalls(1));
  Run(Small("queued"));
  const Status cause = UnavailableError("lost rank 3");
  executor_.Abort(cause);
  executor_.Abort(InternalError("too late to be the cause"));
  ASSERT_TRUE(AwaitEnds(2));
  for (const End& end : ends()) EXPECT_EQ(end.status, cause);
}

TEST_F(ExecutorTest, StopWaitsForTheCauseOfAFailure) {
  for (bool here : {true, false}) {
    FakeCollective collective(0, here ? kInlineBytes : -1);
    collective.Fail(UnavailableError("a broken stream"));
    std::atomic<bool> failed{false}, stopped{false}, ended{false};
    Executor executor(
        0, 1, collective, counters_,
        Executor::Callbacks{[] {}, [&](const Status&) { failed = true; }});
    ASSERT_TRUE(executor.Start().ok());
    Bucket bucket = Small("a");
    bucket.entries[0].completion.Disarm();
    bucket.entries[0].completion =
        Completion([&](const Status&) { ended = true; });
    executor.RunOrPush(std::move(bucket), [] {});
    RunRanks(2, [&](int thread) {
      if (thread == 0) {
        executor.Stop();
        stopped = true;
        EXPECT_TRUE(failed);
        return;
      }
      Pause(std::chrono::milliseconds(20), Deadline::AfterSeconds(1));
      EXPECT_FALSE(stopped);
      EXPECT_FALSE(ended);
      executor.Abort(AbortedError("the cause"));
    });
    EXPECT_TRUE(ended);
    executor.Stop();  // idempotent
  }
}

// Fault: a collective fails, and whoever should say why is gone.
TEST_F(ExecutorTest, StopDoesNotWaitForEverForTheCauseOfAFailure) {
  for (bool here : {true, false}) {
    FakeCollective collective(0, here ? kInlineBytes : -1);
    collective.Fail(UnavailableError("a broken stream"));
    Status ended;
    Executor executor(0, 1, collective, counters_,
                      Executor::Callbacks{[] {}, [](const Status&) {}});
    ASSERT_TRUE(executor.Start().ok());
    Bucket bucket = Small("a");
    bucket.entries[0].completion.Disarm();
    bucket.entries[0].completion =
        Completion([&](const Status& status) { ended = status; });
    executor.RunOrPush(std::move(bucket), [] {});
    executor.Stop(std::chrono::milliseconds(20));
    EXPECT_EQ(ended, UnavailableError("allreduce 'a': a broken stream"));
  }
}

TEST_F(ExecutorTest, StopRunsWhatWasPushed) {
  collective_.Block();
  Run(Large("a"));
  Run(Small("b"));
  RunRanks(2, [&](int thread) {
    if (thread == 0) {
      executor_.Stop();
      EXPECT_THAT(EndedNames(), ElementsAre("a", "b"));
    } else {
      collective_.Release();
    }
  });
}

// A collective whose calls go on after they were started, as those of a device
// do, until the test says how they end.
class DeferredCollective final : public Collective {
 public:
  void Start(const CollectiveArgs& args, Done done) override {
    Status broken;
    {
      MutexLock lock(mutex_);
      broken = broken_;
      if (broken.ok()) {
        calls_.push_back(std::move(done));
        tags_.push_back(CallOf(args).tag);
        changed_.NotifyAll();
      }
    }
    if (!broken.ok()) done(broken);
  }
  void PeerGone(int) override {}
  void Abort(const Status& cause) override {
    for (;;) {
      Done done;
      {
        MutexLock lock(mutex_);
        broken_ = cause;
        if (loses_all_ || calls_.empty()) return;
        done = std::move(calls_.front());
        calls_.pop_front();
      }
      done(cause);
    }
  }

  // Fault: from now on Abort ends no call.
  void LoseAll() {
    MutexLock lock(mutex_);
    loses_all_ = true;
  }
  // Ends the oldest call, on this thread.
  void EndFirst(const Status& status) {
    Done done;
    {
      MutexLock lock(mutex_);
      ASSERT_FALSE(calls_.empty());
      done = std::move(calls_.front());
      calls_.pop_front();
    }
    done(status);
  }
  // Waits until so many calls were started; false if that takes too long.
  bool AwaitStarted(size_t count) {
    MutexLock lock(mutex_);
    return changed_.WaitUntil(
        mutex_, Deadline::AfterSeconds(20).at(),
        [&]() KR_REQUIRES(mutex_) { return tags_.size() >= count; });
  }
  size_t num_started() {
    MutexLock lock(mutex_);
    return tags_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Done> calls_ KR_GUARDED_BY(mutex_);
  std::vector<uint64_t> tags_ KR_GUARDED_BY(mutex_);
  Status broken_ KR_GUARDED_BY(mutex_);
  bool loses_all_ KR_GUARDED_BY(mutex_) = false;
};

class BucketsInFlight : public ExecutorTest {
 protected:
  void TearDown() override {
    device_executor_.Abort(AbortedError("the test is over"));
    device_executor_.Stop();
    ExecutorTest::TearDown();
  }
  // Large on a device.
  Bucket OnDevice(const std::string& name) {
    Bucket bucket = Large(name);
    auto request = std::make_shared<Request>(*bucket.entries[0].request);
    request->device = DeviceKind::kCuda;
    bucket.entries[0].request = request;
    auto agreed = std::make_shared<Response>(*bucket.command.items[0]);
    agreed->request.device = DeviceKind::kCuda;
    bucket.command.items[0] = std::move(agreed);
    return bucket;
  }
  void RunThere(Bucket bucket) {
    device_executor_.RunOrPush(std::move(bucket), progress_);
  }
  static CollectiveSet Both(Collective& host, Collective& device) {
    CollectiveSet both(host);
    both.Add(DeviceKind::kCuda, device);
    return both;
  }

  DeferredCollective device_;
  std::atomic<int> launched_{0};
  Executor device_executor_{
      0, 1, Both(collective_, device_), counters_,
      Executor::Callbacks{[this] { ++launched_; },
                          [this](const Status&) { ++failures_; }}};
};

TEST_F(BucketsInFlight, TheNextIsLaunchedBeforeTheLastIsDone) {
  ASSERT_TRUE(device_executor_.Start().ok());
  RunThere(OnDevice("a"));
  RunThere(OnDevice("b"));
  ASSERT_TRUE(device_.AwaitStarted(2));
  EXPECT_TRUE(ends().empty());
  device_.EndFirst(OkStatus());
  EXPECT_THAT(EndedNames(), ElementsAre("a"));
  // Whoever says that it is done.
  EXPECT_EQ(ends()[0].thread, std::this_thread::get_id());
  device_.EndFirst(OkStatus());
  // By the thread that launched it, if it still has a hold of it.
  ASSERT_TRUE(AwaitEnds(2));
  EXPECT_THAT(EndedNames(), ElementsAre("a", "b"));
  EXPECT_EQ(launched_, 2);
  EXPECT_EQ(counters_.buckets, 2u);
}

TEST_F(BucketsInFlight, ThereIsALimit) {
  ASSERT_TRUE(device_executor_.Start().ok());
  for (size_t i = 0; i <= Executor::kMaxInFlight; ++i) RunThere(OnDevice("a"));
  ASSERT_TRUE(device_.AwaitStarted(Executor::kMaxInFlight));
  Pause(std::chrono::milliseconds(10), Deadline::AfterSeconds(1));
  EXPECT_EQ(device_.num_started(), Executor::kMaxInFlight);
  device_.EndFirst(OkStatus());
  EXPECT_TRUE(device_.AwaitStarted(Executor::kMaxInFlight + 1));
}

TEST_F(BucketsInFlight, ABucketEndsWithTheLastOfItsCalls) {
  ASSERT_TRUE(device_executor_.Start().ok());
  Bucket bucket = OnDevice("a");
  auto request = std::make_shared<Request>(*bucket.entries[0].request);
  request->tensors = {TensorSpec{DType::kFloat32, {3}},
                      TensorSpec{DType::kInt32, {3}}};
  bucket.entries[0].request = request;
  bucket.entries[0].inputs.push_back(bucket.entries[0].inputs[0]);
  bucket.entries[0].outputs.push_back(bucket.entries[0].outputs[0]);
  RunThere(std::move(bucket));
  ASSERT_TRUE(device_.AwaitStarted(2));
  device_.EndFirst(OkStatus());
  EXPECT_TRUE(ends().empty());
  device_.EndFirst(OkStatus());
  EXPECT_TRUE(AwaitEnds(1));
}

// What they are asked for, in order, with what else is noted.
class NotingDevices final : public DeviceAccess {
 public:
  Status CheckAny() override { return OkStatus(); }
  Status Check(int) override { return OkStatus(); }
  Result<std::shared_ptr<const Event>> Record(int ordinal,
                                              void* stream) override {
    Note("record on " + std::to_string(ordinal) + " " +
         static_cast<const char*>(stream));
    return std::shared_ptr<const Event>();
  }
  Result<Memory*> MemoryOf(int) override { return &HostMemory(); }
  int UsualOrdinal() const override { return 0; }

  void Note(const std::string& text) {
    MutexLock lock(mutex_);
    notes_.push_back(text);
  }
  std::vector<std::string> notes() {
    MutexLock lock(mutex_);
    return notes_;
  }

 private:
  Mutex mutex_;
  std::vector<std::string> notes_ KR_GUARDED_BY(mutex_);
};

// What an allocator gives may be in use by work of the caller's stream.
TEST_F(BucketsInFlight, MemoryThatIsAllocatedLateIsRecordedOnceMore) {
  NotingDevices devices;
  CollectiveSet both(collective_);
  both.Add(DeviceKind::kCuda, device_, &devices);
  Executor executor(0, 1, both, counters_,
                    Executor::Callbacks{[] {}, [](const Status&) {}});
  ASSERT_TRUE(executor.Start().ok());
  for (const bool late : {false, true}) {
    Bucket bucket = OnDevice(late ? "late" : "given");
    TensorEntry& entry = bucket.entries[0];
    auto request = std::make_shared<Request>(*entry.request);
    auto agreed = std::make_shared<Response>(*bucket.command.items[0]);
    if (late) {
      request->kind = RequestKind::kAllgather;
      agreed->request.kind = RequestKind::kAllgather;
      entry.outputs = {};
    }
    entry.request = request;
    bucket.command.items[0] = std::move(agreed);
    entry.device_ordinal = 3;
    entry.stream = const_cast<char*>("its stream");
    entry.allocate = [&, memory = entry.inputs[0]](int,
                                                   int64_t) -> Result<void*> {
      devices.Note("allocate");
      return const_cast<void*>(memory);
    };
    executor.RunOrPush(std::move(bucket), progress_);
    ASSERT_TRUE(device_.AwaitStarted(late ? 2 : 1));
  }
  EXPECT_THAT(devices.notes(),
              ElementsAre("allocate", "record on 3 its stream"));
  device_.EndFirst(OkStatus());
  device_.EndFirst(OkStatus());
  EXPECT_TRUE(AwaitEnds(2));
  executor.Stop();
}

TEST_F(BucketsInFlight, AbortEndsThem) {
  ASSERT_TRUE(device_executor_.Start().ok());
  RunThere(OnDevice("a"));
  RunThere(OnDevice("b"));
  ASSERT_TRUE(device_.AwaitStarted(2));
  const Status cause = UnavailableError("lost rank 3");
  device_executor_.Abort(cause);
  ASSERT_TRUE(AwaitEnds(2));
  for (const End& end : ends()) EXPECT_EQ(end.status, cause);
}

TEST_F(BucketsInFlight, AFailureWaitsForItsCause) {
  ASSERT_TRUE(device_executor_.Start().ok());
  RunThere(OnDevice("a"));
  RunThere(OnDevice("b"));
  ASSERT_TRUE(device_.AwaitStarted(2));
  device_.EndFirst(UnavailableError("a broken link"));
  device_.EndFirst(UnavailableError("broken before"));
  EXPECT_EQ(failures(), 1);
  EXPECT_TRUE(ends().empty());
  const Status cause = UnavailableError("lost rank 3");
  device_executor_.Abort(cause);
  ASSERT_TRUE(AwaitEnds(2));
  for (const End& end : ends()) EXPECT_EQ(end.status, cause);
}

TEST_F(BucketsInFlight, StopWaitsForThem) {
  ASSERT_TRUE(device_executor_.Start().ok());
  RunThere(OnDevice("a"));
  RunThere(OnDevice("b"));
  std::atomic<bool> stopped{false};
  RunRanks(2, [&](int thread) {
    if (thread == 0) {
      device_executor_.Stop();
      stopped = true;
      EXPECT_THAT(EndedNames(), ElementsAre("a", "b"));
      return;
    }
    EXPECT_TRUE(device_.AwaitStarted(2));
    device_.EndFirst(OkStatus());
    Pause(std::chrono::milliseconds(10), Deadline::AfterSeconds(1));
    EXPECT_FALSE(stopped);
    device_.EndFirst(OkStatus());
  });
}

// Fault: a device never says that a call is done.
TEST_F(BucketsInFlight, StopAbortsWhatDoesNotEnd) {
  const LogCapture logs(LogLevel::kWarning);
  ASSERT_TRUE(device_executor_.Start().ok());
  RunThere(OnDevice("a"));
  RunThere(OnDevice("b"));
  ASSERT_TRUE(device_.AwaitStarted(2));
  device_executor_.Stop(std::chrono::milliseconds(20));
  ASSERT_EQ(ends().size(), 2u);
  for (const End& end : ends()) {
    EXPECT_EQ(end.status.code(), StatusCode::kDeadlineExceeded);
    EXPECT_THAT(end.status.message(),
                HasSubstr("allreduce 'a', allreduce 'b': not done 0.02"));
  }
  EXPECT_THAT(logs.lines(),
              ElementsAre(HasSubstr("allreduce 'a', allreduce 'b'")));
}

// Nor can the data thread go on, which waits for room.
TEST_F(BucketsInFlight, StopAbortsWhatWaitsBehindIt) {
  const LogCapture logs(LogLevel::kWarning);
  ASSERT_TRUE(device_executor_.Start().ok());
  const size_t count = Executor::kMaxInFlight + 2;
  for (size_t i = 0; i < count; ++i) RunThere(OnDevice("a"));
  ASSERT_TRUE(device_.AwaitStarted(Executor::kMaxInFlight));
  device_executor_.Stop(std::chrono::milliseconds(20));
  EXPECT_EQ(ends().size(), count);
}

// Fault: it does not end the call when it is aborted, but does so when all is
// over.
TEST_F(BucketsInFlight, WhatDoesNotEndWhenItIsAbortedIsGivenUp) {
  const LogCapture logs(LogLevel::kWarning);
  device_.LoseAll();
  {
    Executor executor(0, 1, Both(collective_, device_), counters_,
                      Executor::Callbacks{[] {}, [](const Status&) {}});
    ASSERT_TRUE(executor.Start().ok());
    executor.RunOrPush(OnDevice("a"), progress_);
    ASSERT_TRUE(device_.AwaitStarted(1));
    executor.Stop(std::chrono::milliseconds(20));
    ASSERT_EQ(ends().size(), 1u);
    EXPECT_EQ(ends()[0].status.code(), StatusCode::kDeadlineExceeded);
  }
  EXPECT_THAT(
      logs.lines(LogLevel::kError),
      ElementsAre(HasSubstr("allreduce 'a': did not end when it was aborted")));
  device_.EndFirst(OkStatus());
  EXPECT_EQ(ends().size(), 1u);
}

// A call that does not return before it is done has limits of its own.
TEST_F(ExecutorTest, StopWaitsForACallThatBlocks) {
  collective_.Block();
  Run(Large("a"));
  ASSERT_TRUE(collective_.AwaitCalls(1));
  std::atomic<bool> stopped{false};
  RunRanks(2, [&](int thread) {
    if (thread == 0) {
      executor_.Stop(std::chrono::milliseconds(1));
      stopped = true;
      return;
    }
    Pause(std::chrono::milliseconds(50), Deadline::AfterSeconds(1));
    EXPECT_FALSE(stopped);
    collective_.Release();
  });
  ASSERT_EQ(ends().size(), 1u);
  EXPECT_TRUE(ends()[0].status.ok());
}

TEST_F(BucketsInFlight, EachKindOfMemoryHasItsCollective) {
  ASSERT_TRUE(device_executor_.Start().ok());
  RunThere(OnDevice("there"));
  ASSERT_TRUE(device_.AwaitStarted(1));
  RunThere(Large("here"));
  ASSERT_TRUE(AwaitEnds(1));
  EXPECT_THAT(EndedNames(), ElementsAre("here"));
  EXPECT_EQ(collective_.calls().size(), 1u);
}

TEST_F(ExecutorTest, ADeviceThatNoCollectiveServes) {
  Bucket bucket = Small("a");
  auto request = std::make_shared<Request>(*bucket.entries[0].request);
  request->device = DeviceKind::kCuda;
  bucket.entries[0].request = request;
  Run(std::move(bucket));
  EXPECT_EQ(failures(), 1);
  EXPECT_THAT(failure_.message(), HasSubstr("memory of gpu:0"));
  EXPECT_TRUE(collective_.calls().empty());
}

struct Ready final : public Event {
  explicit Ready(FakeCollective& collective) : collective(collective) {}
  Status Wait() const override {
    calls_before = collective.calls().size();
    return status;
  }
  FakeCollective& collective;
  Status status;
  mutable size_t calls_before = 99;
};

TEST_F(ExecutorTest, InputsAreReadOnceTheyAreReady) {
  const auto event = std::make_shared<Ready>(collective_);
  Bucket bucket = Small("a");
  bucket.entries[0].ready = event;
  Run(std::move(bucket));
  EXPECT_EQ(event->calls_before, 0u);
  EXPECT_EQ(collective_.calls().size(), 1u);
}

TEST_F(ExecutorTest, InputsOfALostDeviceAreNotRead) {
  const auto event = std::make_shared<Ready>(collective_);
  event->status = UnavailableError("the device is lost");
  Bucket bucket = Small("a");
  bucket.entries[0].ready = event;
  Run(std::move(bucket));
  EXPECT_EQ(failures(), 1);
  EXPECT_THAT(failure_.message(), HasSubstr("the device is lost"));
  EXPECT_TRUE(collective_.calls().empty());
}

// One entry on rank 1 of 3, whose results are asked for on the way.
class ScatteringTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(executor_.Start().ok()); }
  void TearDown() override {
    executor_.Abort(AbortedError("the test is over"));
    executor_.Stop();
  }

  // Runs it; `own` is this rank's request.
  Status Run(const Response& agreed, const Request& own,
             SmallVector<const void*> inputs) {
    std::promise<Status> ended;
    TensorEntry entry;
    entry.request = std::make_shared<const Request>(own);
    entry.inputs = std::move(inputs);
    entry.allocate = [this](int result, int64_t rows) -> Result<void*> {
      EXPECT_EQ(result, static_cast<int>(rows_.size()));
      rows_.push_back(rows);
      results_.emplace_back(100);
      if (!refuse_.ok()) return refuse_;
      return static_cast<void*>(results_.back().data());
    };
    entry.completion =
        Completion([&](const Status& status) { ended.set_value(status); });
    Bucket bucket;
    bucket.command.sequence = 5;
    bucket.command.items.push_back(std::make_shared<const Response>(agreed));
    bucket.entries.push_back(std::move(entry));
    executor_.RunOrPush(std::move(bucket), [] {});
    return ended.get_future().get();
  }

  Counters counters_;
  FakeCollective collective_{1};
  Executor executor_{
      1, 3, collective_, counters_,
      Executor::Callbacks{
          [] {}, [this](const Status& status) { executor_.Abort(status); }}};
  Status refuse_;
  std::vector<int64_t> rows_;
  std::deque<std::vector<int64_t>> results_;
};

Request ScatteringRequest(RequestKind kind, std::vector<TensorSpec> tensors) {
  Request request = AllreduceRequest("x", 0);
  request.kind = kind;
  request.tensors = std::move(tensors);
  return request;
}

TEST_F(ScatteringTest, AGroupOfAllgathersIsACallPerTensor) {
  Response agreed;
  agreed.request = ScatteringRequest(
      RequestKind::kAllgather,
      {TensorSpec{DType::kInt64, {0, 2}}, TensorSpec{DType::kInt8, {0}}});
  agreed.rows = {1, 2, 0, 4, 5, 6};
  const std::vector<int64_t> numbers = {1, 2, 3, 4};
  const std::vector<int8_t> bytes = {9, 8, 7, 6, 5};
  const Status status =
      Run(agreed, agreed.RequestOf(1), {numbers.data(), bytes.data()});
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_THAT(rows_, ElementsAre(3, 15));
  const auto calls = collective_.calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_THAT(calls[0].allgather.bytes_per_rank, ElementsAre(16, 32, 0));
  EXPECT_THAT(calls[1].allgather.bytes_per_rank, ElementsAre(4, 5, 6));
  EXPECT_EQ(calls[0].allgather.tag, 80u);
  results_[0].resize(6);
  EXPECT_THAT(results_[0], ElementsAre(0, 0, 1, 2, 3, 4));
}

TEST_F(ScatteringTest, AReducescatterDividesRows) {
  Response agreed;
  agreed.request = ScatteringRequest(
      RequestKind::kReducescatter,
      {TensorSpec{DType::kInt64, {5, 2}}, TensorSpec{DType::kFloat32, {1}}});
  agreed.request.op = ReduceOp::kAverage;
  const std::vector<int64_t> numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const float number = 1.0f;
  ASSERT_TRUE(Run(agreed, agreed.request, {numbers.data(), &number}).ok());
  EXPECT_THAT(rows_, ElementsAre(2, 0));
  const auto calls = collective_.calls();
  ASSERT_EQ(calls.size(), 2u);
  const ReducescatterArgs& args = calls[0].reducescatter;
  EXPECT_THAT(args.count_per_rank, ElementsAre(4, 4, 2));
  EXPECT_EQ(args.dtype, DType::kInt64);
  EXPECT_EQ(args.op, ReduceOp::kAverage);
  EXPECT_EQ(args.divisor, 3);
  EXPECT_EQ(calls[1].reducescatter.dtype, DType::kFloat32);
  EXPECT_THAT(calls[1].reducescatter.count_per_rank, ElementsAre(1, 0, 0));
  results_[0].resize(4);
  EXPECT_THAT(results_[0], ElementsAre(4, 5, 6, 7));
}

TEST_F(ScatteringTest, FactorsReachAReducescatter) {
  Response agreed;
  agreed.request = ScatteringRequest(RequestKind::kReducescatter,
                                     {TensorSpec{DType::kFloat32, {3}}});
  agreed.request.prescale = 2.0;
  agreed.request.postscale = 3.0;
  agreed.request.compression = Compression::kBfloat16;
  const std::vector<float> numbers = {1, 2, 3};
  ASSERT_TRUE(Run(agreed, agreed.request, {numbers.data()}).ok());
  const ReducescatterArgs args = collective_.calls()[0].reducescatter;
  EXPECT_EQ(args.prescale, 2.0);
  EXPECT_EQ(args.postscale, 3.0);
  EXPECT_EQ(args.compression, Compression::kBfloat16);
}

TEST_F(ScatteringTest, AnAlltoallKnowsWhatComesFromWhere) {
  Response agreed;
  agreed.request = ScatteringRequest(RequestKind::kAlltoall,
                                     {TensorSpec{DType::kInt64, {0, 2}}});
  agreed.rows = {3, 3, 4};
  agreed.splits = {{}, {2, 1, 0}, {0, 4, 0}};
  const std::vector<int64_t> numbers = {0, 1, 2, 3, 4, 5};
  ASSERT_TRUE(Run(agreed, agreed.RequestOf(1), {numbers.data()}).ok());
  EXPECT_THAT(rows_, ElementsAre(6, 3));
  EXPECT_THAT(collective_.calls()[0].alltoall_bytes,
              ElementsAre(16, 16, 16, 32, 16, 0, 0, 64, 0));
  results_[1].resize(3);
  EXPECT_THAT(results_[1], ElementsAre(1, 1, 4));
  results_[0].resize(4);
  EXPECT_THAT(results_[0], ElementsAre(0, 0, 4, 5));
}

TEST_F(ScatteringTest, NoMemoryForAResultIsAFailure) {
  refuse_ = ResourceExhaustedError("no memory for a result");
  Response agreed;
  agreed.request = ScatteringRequest(RequestKind::kReducescatter,
                                     {TensorSpec{DType::kFloat32, {3}}});
  const std::vector<float> numbers = {1, 2, 3};
  const Status status = Run(agreed, agreed.request, {numbers.data()});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(collective_.calls().empty());
}

}  // namespace
}  // namespace keras_ring
