#include "csrc/runtime/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "csrc/base/deadline.h"
#include "csrc/base/sticky_status.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/control_tree.h"
#include "csrc/control/controller.h"
#include "csrc/control/message.h"
#include "csrc/runtime/diagnostics/flight_log.h"
#include "csrc/testing/collective_calls.h"
#include "csrc/testing/controller_cluster.h"
#include "csrc/testing/fake_collective.h"
#include "csrc/testing/faulty_transport.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/runtime_cluster.h"

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kFlat = {"a", "a", "a", "a"};
const std::vector<std::string> kTwoHosts = {"a", "a", "b", "b"};

TEST(Topology, LocalAndCross) {
  Topology topology = TopologyOf({"a", "b", "a", "b", "b"}, 3);
  EXPECT_EQ(topology.local_rank, 1);
  EXPECT_EQ(topology.local_size, 3);
  EXPECT_EQ(topology.cross_rank, 1);
  EXPECT_EQ(topology.cross_size, 2);
  EXPECT_FALSE(topology.homogeneous);
  topology = TopologyOf({"a", "b", "a", "b", "b"}, 4);
  EXPECT_EQ(topology.cross_rank, 0);
  EXPECT_EQ(topology.cross_size, 1);
}

// What a cluster's ranks share with those of their host.
struct Sharing {
  const char* name;
  RuntimeClusterSetup setup;
};
void PrintTo(const Sharing& sharing, std::ostream* out) {
  *out << sharing.name;
}

RuntimeClusterSetup SharedMemorySetup(Duration spin) {
  RuntimeClusterSetup setup;
  setup.shares_memory = true;
  setup.spin = spin;
  return setup;
}

class RuntimeTest : public testing::TestWithParam<Sharing> {
 protected:
  RuntimeClusterSetup setup() const { return GetParam().setup; }
};

INSTANTIATE_TEST_SUITE_P(
    Sharing, RuntimeTest,
    testing::Values(Sharing{"nothing", RuntimeClusterSetup()},
                    Sharing{"memory", SharedMemorySetup(Duration::zero())},
                    Sharing{"memory_spinning",
                            SharedMemorySetup(std::chrono::microseconds(50))}),
    [](const auto& info) { return std::string(info.param.name); });

// The same tensors, on each rank in a random order of its own, many times:
// never a hang, every sum exact. On one host and on two.
TEST_P(RuntimeTest, RandomOrdersAreExact) {
  constexpr int kTensors = 40;
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    RuntimeCluster cluster(hosts, Options(), setup());
    RunRanks(cluster.size(), [&](int rank) {
      for (int seed = 0; seed < 100; ++seed) {
        std::mt19937 random(1000 * seed + rank);
        std::vector<int> order(kTensors);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        std::vector<FloatOperation> operations(kTensors);
        for (int tensor : order) {
          operations[tensor].input.assign(tensor * 7 % 50,
                                          float(rank + 1) * tensor);
          ASSERT_TRUE(EnqueueSum(cluster.at(rank), std::to_string(tensor),
                                 operations[tensor])
                          .ok());
        }
        for (int tensor = 0; tensor < kTensors; ++tensor) {
          Status status = Await(operations[tensor]);
          ASSERT_TRUE(status.ok()) << "seed " << seed << status.ToString();
          for (float value : operations[tensor].output) {
            ASSERT_EQ(value, 10.0f * tensor) << "seed " << seed;
          }
        }
      }
    });
  }
}

// Everything that there is to tune, while the ranks train.
TEST_P(RuntimeTest, ResultsStayRightWhileTheJobIsTuned) {
  constexpr int kTensors = 12;
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    RuntimeCluster cluster(hosts, Options(), setup());
    const std::vector<TunableRange> ranges = cluster.at(0).tunables();
    RunRanks(cluster.size(), [&](int rank) {
      std::mt19937 random(1);
      for (int step = 0; step < 60; ++step) {
        if (rank == 0) {
          const TunableRange& range = ranges[random() % ranges.size()];
          const int64_t high = range.tunable == Tunable::kLinger
                                   ? 100
                                   : std::min(range.high, int64_t{1} << 20);
          const int64_t value = range.low + random() % (high - range.low + 1);
          const Status tuned =
              cluster.at(0).Tune(TunableName(range.tunable), value);
          ASSERT_TRUE(tuned.ok()) << tuned.ToString();
        }
        std::vector<FloatOperation> operations(kTensors);
        for (int tensor = 0; tensor < kTensors; ++tensor) {
          operations[tensor].input.assign(tensor * tensor * 97,
                                          float(rank + 1) * tensor);
          ASSERT_TRUE(EnqueueSum(cluster.at(rank), std::to_string(tensor),
                                 operations[tensor])
                          .ok());
        }
        for (int tensor = 0; tensor < kTensors; ++tensor) {
          const Status status = Await(operations[tensor]);
          ASSERT_TRUE(status.ok()) << status.ToString();
          for (float value : operations[tensor].output) {
            ASSERT_EQ(value, 10.0F * tensor) << "step " << step;
          }
        }
      }
    });
    EXPECT_GT(cluster.at(0).counters().steps, 10u);
  }
}

TEST(RuntimeTuning, BeginsWithWhatIsSet) {
  Options options;
  options.fusion_threshold = 1 << 20;
  options.planned_bucket = 1 << 18;
  options.cycle_time_ms = 2;
  RuntimeCluster cluster(kFlat, options, SharedMemorySetup(Duration::zero()));
  const std::vector<TunableRange> ranges = cluster.at(0).tunables();
  EXPECT_EQ(FindTunable(ranges, "fusion_threshold")->value, 1 << 20);
  EXPECT_EQ(FindTunable(ranges, "planned_bucket")->value, 1 << 18);
  EXPECT_EQ(FindTunable(ranges, "linger")->value, 2000);
  cluster.ShutdownAll();
}

TEST(RuntimeTuning, IsOfRank0AndWithinBounds) {
  RuntimeCluster cluster(kFlat, Options(), SharedMemorySetup(Duration::zero()));
  EXPECT_THAT(cluster.at(2).Tune("linger", 5).message(),
              AllOf(HasSubstr("rank 2"), HasSubstr("only rank 0")));
  EXPECT_THAT(cluster.at(0).Tune("sockets", 5).message(),
              AllOf(HasSubstr("'sockets'"), HasSubstr("fusion_threshold")));
  EXPECT_THAT(cluster.at(0).Tune("part_bytes", 1 << 30).message(),
              AllOf(HasSubstr("part_bytes cannot be 1073741824"),
                    HasSubstr("from 8192 to 131072")));
  ASSERT_TRUE(cluster.at(0).Tune("part_bytes", 8192).ok());
  const std::vector<TunableRange> now = cluster.at(0).tunables();
  EXPECT_EQ(FindTunable(now, "part_bytes")->value, 8192);
  EXPECT_EQ(FindTunable(now, "linger")->value, 0);
  cluster.ShutdownAll();
  EXPECT_THAT(cluster.at(0).Tune("linger", 5).message(),
              HasSubstr("shut down"));
}

struct JoinOperation {
  int32_t last_rank = -1;
  std::promise<Status> finished;
};

// Joins, and waits for the others at most 30 s.
Status Join(Runtime& runtime, int32_t* last_rank) {
  auto operation = std::make_shared<JoinOperation>();
  auto request = std::make_shared<Request>();
  request->name = "join";
  request->kind = RequestKind::kJoin;
  TensorEntry entry;
  entry.request = request;
  entry.outputs.push_back(&operation->last_rank);
  entry.completion = Completion([operation](const Status& status) {
    operation->finished.set_value(status);
  });
  std::future<Status> status = operation->finished.get_future();
  KR_RETURN_IF_ERROR(runtime.Enqueue(std::move(entry)));
  if (status.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
    return DeadlineExceededError("no end of the join");
  }
  *last_rank = operation->last_rank;
  return status.get();
}

// Ranks have steps of their own number, which are planned, and large tensors
// among them; then they join, several times over.
TEST_P(RuntimeTest, RanksJoinAfterStepsOfTheirOwnNumber) {
  constexpr int kTensors = 8, kEpochs = 4;  // each rank has each length
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    RuntimeCluster cluster(hosts, Options(), setup());
    std::vector<std::vector<int32_t>> last(cluster.size(),
                                           std::vector<int32_t>(kEpochs, -1));
    RunRanks(cluster.size(), [&](int rank) {
      for (int epoch = 0; epoch < kEpochs; ++epoch) {
        auto steps_of = [epoch](int r) { return 7 * ((r + epoch) % 4); };
        for (int step = 0; step < steps_of(rank); ++step) {
          float sum = 0;
          for (int r = 0; r < 4; ++r) sum += step < steps_of(r) ? r + 1 : 0;
          std::vector<FloatOperation> operations(kTensors);
          for (int i = 0; i < kTensors; ++i) {
            operations[i].input.assign(i == 0 ? 300000 : 10 * i, rank + 1.0f);
            ASSERT_TRUE(
                EnqueueSum(cluster.at(rank), std::to_string(i), operations[i])
                    .ok());
          }
          for (int i = 0; i < kTensors; ++i) {
            Status status = Await(operations[i]);
            ASSERT_TRUE(status.ok()) << status.ToString();
            const auto& output = operations[i].output;
            ASSERT_EQ(std::count(output.begin(), output.end(), sum),
                      static_cast<int64_t>(output.size()));
          }
        }
        Status status = Join(cluster.at(rank), &last[rank][epoch]);
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
    });
    for (int rank = 0; rank < cluster.size(); ++rank) {
      EXPECT_EQ(last[rank], last[0]);
      EXPECT_GE(last[rank][0], 0);
    }
  }
}

// Also a rank that waits in a join hears of the end.
TEST_P(RuntimeTest, AJoinEndsWithTheJob) {
  for (bool dies : {false, true}) {
    RuntimeCluster cluster(kFlat, Options(), setup());
    RunRanks(cluster.size(), [&](int rank) {
      if (rank == 2) {
        FloatOperation operation;
        operation.input = {1.0f};
        // With three that have joined.
        ASSERT_TRUE(EnqueueSum(cluster.at(rank), "x", operation).ok());
        ASSERT_TRUE(Await(operation).ok());
        ASSERT_EQ(operation.output[0], 1.0f);
        if (dies) {
          cluster.CutOff(rank);
        } else {
          cluster.at(rank).Shutdown("an error of its own");
        }
        return;
      }
      int32_t last_rank;
      const Status status = Join(cluster.at(rank), &last_rank);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
      EXPECT_THAT(status.message(), HasSubstr("rank 2"));
    });
  }
}

// Steps of training are planned; a program that changes its mind, in every way
// it can, is neither wrong nor stalled.
TEST_P(RuntimeTest, StepsThatAreLearnedAndLeftAgain) {
  constexpr int kTensors = 12, kSteps = 60;
  RuntimeCluster cluster({"a", "a", "a"}, Options(), setup());
  std::vector<uint64_t> buckets(cluster.size());
  RunRanks(cluster.size(), [&](int rank) {
    Runtime& runtime = cluster.at(rank);
    auto step = [&](const std::vector<int>& tensors, bool waits_in_between) {
      std::vector<FloatOperation> operations(tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        operations[i].input = {float(rank + 1)};
        ASSERT_TRUE(
            EnqueueSum(runtime, std::to_string(tensors[i]), operations[i])
                .ok());
        if (waits_in_between) {
          operations[i].status.wait_for(std::chrono::seconds(30));
        }
      }
      for (FloatOperation& operation : operations) {
        Status status = Await(operation);
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(operation.output[0], 6.0f);
      }
    };
    std::vector<int> all(kTensors);
    std::iota(all.begin(), all.end(), 0);
    const std::vector<int> some(all.begin() + 1, all.end());
    for (int i = 0; i < kSteps; ++i) step(all, false);
    const uint64_t before = runtime.counters().buckets;
    for (int i = 0; i < kSteps; ++i) step(all, false);
    buckets[rank] = runtime.counters().buckets - before;
    // One is missing; all are waited for one by one; others come between.
    const TimePoint began = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) step(some, false);
    for (int i = 0; i < kSteps; ++i) step(all, true);
    for (int i = 0; i < kSteps; ++i) step(i % 3 == 0 ? some : all, i % 7 == 0);
    EXPECT_LT(std::chrono::steady_clock::now() - began,
              std::chrono::seconds(20));
  });
  for (int rank = 1; rank < cluster.size(); ++rank) {
    EXPECT_EQ(buckets[rank], buckets[0]);
  }
}

// An operation whose result's size is found out on the way.
struct SizedOperation {
  std::vector<float> input, output;
  std::vector<int64_t> received_splits;
  std::promise<Status> finished;
};

Status RunSized(Runtime& runtime, const Request& request,
                SizedOperation& operation) {
  TensorEntry entry;
  entry.request = std::make_shared<const Request>(request);
  entry.inputs = {operation.input.data()};
  entry.allocate = [&operation](int result, int64_t rows) -> Result<void*> {
    if (result == 1) {
      operation.received_splits.resize(rows);
      return static_cast<void*>(operation.received_splits.data());
    }
    operation.output.assign(rows, -1.0f);
    return static_cast<void*>(operation.output.data());
  };
  entry.completion = Completion([&operation](const Status& status) {
    operation.finished.set_value(status);
  });
  KR_RETURN_IF_ERROR(runtime.Enqueue(std::move(entry)));
  std::future<Status> status = operation.finished.get_future();
  if (status.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
    return DeadlineExceededError("the operation did not end");
  }
  return status.get();
}

// Of sizes that go inline, through the segments in one and in several chunks.
TEST_P(RuntimeTest, ReducescattersOfAnySize) {
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    RuntimeCluster cluster(hosts, Options(), setup());
    const int size = cluster.size();
    RunRanks(size, [&](int rank) {
      for (int64_t rows : {0, 1, 3, 4, 7, 1000, 100003, 1000001}) {
        Request request = AllreduceRequest("x", rows);
        request.kind = RequestKind::kReducescatter;
        SizedOperation operation;
        for (int64_t i = 0; i < rows; ++i) {
          operation.input.push_back(float(i % 1000 + rank));
        }
        const Status status = RunSized(cluster.at(rank), request, operation);
        ASSERT_TRUE(status.ok()) << status.ToString();
        int64_t row = 0;
        for (int r = 0; r < rank; ++r) row += ScatteredRows(rows, r, size);
        ASSERT_EQ(operation.output.size(),
                  static_cast<size_t>(ScatteredRows(rows, rank, size)));
        for (float value : operation.output) {
          ASSERT_EQ(value, float(row++ % 1000 * 4 + 6)) << rows;
        }
      }
    });
  }
}

TEST_P(RuntimeTest, AlltoallsOfRandomSplits) {
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    RuntimeCluster cluster(hosts, Options(), setup());
    const int size = cluster.size();
    RunRanks(size, [&](int rank) {
      for (int seed = 0; seed < 40; ++seed) {
        std::mt19937 random(seed);  // the same on all ranks
        std::vector<std::vector<int64_t>> splits(size);
        for (auto& row : splits) {
          for (int to = 0; to < size; ++to) {
            row.push_back(random() % 3 == 0 ? 0 : random() % (50 << seed % 12));
          }
        }
        Request request = AllreduceRequest("x", 0);
        request.kind = RequestKind::kAlltoall;
        request.splits = splits[rank];
        SizedOperation operation;
        for (int to = 0; to < size; ++to) {
          operation.input.insert(operation.input.end(), splits[rank][to],
                                 float(10 * rank + to));
        }
        request.tensors[0].shape = {int64_t(operation.input.size())};
        const Status status = RunSized(cluster.at(rank), request, operation);
        ASSERT_TRUE(status.ok()) << status.ToString();
        std::vector<float> want;
        for (int from = 0; from < size; ++from) {
          EXPECT_EQ(operation.received_splits[from], splits[from][rank]);
          want.insert(want.end(), splits[from][rank], float(10 * from + rank));
        }
        ASSERT_EQ(operation.output, want) << seed;
      }
    });
  }
}

TEST_P(RuntimeTest, MismatchIsTheSameErrorAndTheJobGoesOn) {
  RuntimeCluster cluster(kTwoHosts, Options(), setup());
  std::vector<Status> errors(cluster.size());
  RunRanks(cluster.size(), [&](int rank) {
    FloatOperation odd;
    odd.input.assign(rank == 3 ? 5 : 4, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "w", odd).ok());
    errors[rank] = Await(odd);
    FloatOperation next;
    next.input.assign(4, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "w", next).ok());
    ASSERT_TRUE(Await(next).ok());
    EXPECT_EQ(next.output[0], 4.0f);
  });
  for (const Status& error : errors) {
    EXPECT_EQ(error, errors[0]);
    EXPECT_THAT(error.message(), HasSubstr("rank 3 has [5]"));
  }
}

TEST_P(RuntimeTest, ShutdownOfOneRankEndsWhatOthersWaitFor) {
  RuntimeCluster cluster(kFlat, Options(), setup());
  std::vector<FloatOperation> operations(4);
  for (int rank = 0; rank < 3; ++rank) {
    operations[rank].input.assign(4, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "w", operations[rank]).ok());
  }
  cluster.at(3).Shutdown("ValueError: no");
  for (int rank = 0; rank < 3; ++rank) {
    Status status = Await(operations[rank]);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr("rank 3"), HasSubstr("ValueError: no")));
  }
  FloatOperation late;
  late.input.assign(4, 1.0f);
  EXPECT_EQ(EnqueueSum(cluster.at(0), "late", late).code(),
            StatusCode::kUnavailable);
  EXPECT_EQ(EnqueueSum(cluster.at(3), "late", late).code(),
            StatusCode::kUnavailable);
}

// The last bucket before the end is still executed everywhere, although the
// first rank to have it leaves at once, and its process ends.
TEST_P(RuntimeTest, LeavingRightAfterTheLastResultHurtsNobody) {
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    for (int round = 0; round < 50; ++round) {
      LogCapture log;
      RuntimeCluster cluster(hosts, Options(), setup());
      RunRanks(4, [&](int rank) {
        FloatOperation last;
        last.input.assign(20000, 1.0f);
        ASSERT_TRUE(EnqueueSum(cluster.at(rank), "last", last).ok());
        Status status = Await(last);
        ASSERT_TRUE(status.ok()) << status.ToString();
        cluster.at(rank).Shutdown("");
        cluster.Destroy(rank);
      });
      // Nobody is taken for lost.
      EXPECT_THAT(log.lines(LogLevel::kError), IsEmpty());
    }
  }
}

// A collective around another one, which a test holds up.
class HeldCollective final : public BlockingCollective, public InlineExecution {
 public:
  enum class Hold { kBefore, kAfter };
  struct Gate {
    std::atomic<bool> reached{false};
    std::atomic<bool> open{false};
    std::atomic<int> looks{0};  // while closed
  };

  // Before or after it runs in `inner`, an allreduce waits for the gate, and
  // does its progress meanwhile, as if for other ranks.
  HeldCollective(std::unique_ptr<Collective> inner, Hold hold, Gate& gate)
      : owned_(std::move(inner)),
        inner_(*owned_),
        inner_inline_(owned_->inline_execution()),
        hold_(hold),
        gate_(gate) {}

  Status Allreduce(const AllreduceArgs& args) override {
    if (hold_ == Hold::kBefore) Wait();
    // While Abort runs, `inner` may not know yet, and would send to others.
    KR_RETURN_IF_ERROR(aborted_.Get());
    KR_RETURN_IF_ERROR(inner_.Allreduce(args));
    if (hold_ == Hold::kAfter) Wait();
    return aborted_.Get();
  }
  Status Allgather(const AllgatherArgs& args) override {
    return inner_.Allgather(args);
  }
  Status Broadcast(const BroadcastArgs& args) override {
    return inner_.Broadcast(args);
  }
  Status Reducescatter(const ReducescatterArgs& args) override {
    return inner_.Reducescatter(args);
  }
  Status Alltoall(const AlltoallArgs& args) override {
    return inner_.Alltoall(args);
  }
  InlineExecution* inline_execution() override {
    return inner_inline_ == nullptr ? nullptr : this;
  }
  int64_t InlineBytes() const override { return inner_inline_->InlineBytes(); }
  void SetProgressCallback(const std::function<void()>* progress) override {
    progress_ = progress;
    inner_inline_->SetProgressCallback(progress);
  }
  void PeerGone(int rank) override { owned_->PeerGone(rank); }
  void Abort(const Status& cause) override {
    aborted_.Set(cause);
    owned_->Abort(cause);
  }

 private:
  void Wait() {
    gate_.reached = true;
    while (!gate_.open && aborted_.Get().ok()) {
      if (progress_ != nullptr) (*progress_)();
      ++gate_.looks;
      Pause(std::chrono::milliseconds(1), Deadline::AfterSeconds(1));
    }
  }

  const std::unique_ptr<Collective> owned_;
  CollectiveCalls inner_;
  InlineExecution* const inner_inline_;
  const Hold hold_;
  Gate& gate_;
  const std::function<void()>* progress_ = nullptr;
  StickyStatus aborted_;
};

RuntimeClusterSetup Held(RuntimeClusterSetup setup, int held,
                         HeldCollective::Hold hold,
                         HeldCollective::Gate& gate) {
  setup.wrap_collective = [=, &gate](int rank,
                                     std::unique_ptr<Collective> collective)
      -> std::unique_ptr<Collective> {
    if (rank != held) return collective;
    return std::make_unique<HeldCollective>(std::move(collective), hold, gate);
  };
  return setup;
}

bool WaitUntilTrue(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::AfterSeconds(20);
  while (!condition() && !deadline.expired()) {
    Pause(std::chrono::milliseconds(1), deadline);
  }
  return condition();
}

// Rank 1 is late to see that the last bucket is through; meanwhile the end was
// agreed on, and the coordinator's process is gone.
TEST_P(RuntimeTest, AnAgreedEndIsNoLossToARankThatStillRunsABucket) {
  for (size_t count : {4u, 20000u}) {
    HeldCollective::Gate gate;
    RuntimeCluster cluster(
        kFlat, Options(), Held(setup(), 1, HeldCollective::Hold::kAfter, gate));
    std::vector<FloatOperation> last(4);
    for (int rank = 0; rank < 4; ++rank) {
      last[rank].input.assign(count, 1.0f);
      ASSERT_TRUE(EnqueueSum(cluster.at(rank), "last", last[rank]).ok());
    }
    ASSERT_TRUE(WaitUntilTrue([&] { return gate.reached.load(); }));
    ASSERT_TRUE(Await(last[0]).ok());
    cluster.Destroy(0);
    const int looks = gate.looks;
    ASSERT_TRUE(WaitUntilTrue([&] { return gate.looks > looks + 10; }));
    gate.open = true;
    for (int rank = 1; rank < 4; ++rank) {
      const Status status = Await(last[rank]);
      EXPECT_TRUE(status.ok()) << "rank " << rank << ": " << status.ToString();
      EXPECT_EQ(last[rank].output, std::vector<float>(count, 4.0f));
    }
  }
}

// Fault: a rank is lost in the middle of a bucket, which the others run
// (inline, where they share memory and it is small) and wait for it. Error: on
// every other rank, that it was lost, within a second.
TEST_P(RuntimeTest, ARankLostDuringABucketIsNamedAtOnce) {
  struct Case {
    std::vector<std::string> hosts;
    int lost;  // with one peer, for it lives on here and would tell others
  };
  for (const Case& one : {Case{kFlat, 3}, Case{{"a", "a", "b", "b", "b"}, 4},
                          Case{{"a", "a"}, 0}}) {
    for (size_t count : {4u, 400000u}) {
      LogCapture log;
      HeldCollective::Gate gate;
      RuntimeCluster cluster(
          one.hosts, Options(),
          Held(setup(), one.lost, HeldCollective::Hold::kBefore, gate));
      std::vector<FloatOperation> operations(cluster.size());
      for (int rank = 0; rank < cluster.size(); ++rank) {
        operations[rank].input.assign(count, 1.0f);
        ASSERT_TRUE(EnqueueSum(cluster.at(rank), "w", operations[rank]).ok());
      }
      ASSERT_TRUE(WaitUntilTrue([&] { return gate.reached.load(); }));
      Pause(std::chrono::milliseconds(10), Deadline::AfterSeconds(1));
      const TimePoint began = std::chrono::steady_clock::now();
      cluster.CutOff(one.lost);
      for (int rank = 0; rank < cluster.size(); ++rank) {
        const Status status = Await(operations[rank]);
        EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
        if (rank == one.lost) continue;
        EXPECT_THAT(status.message(),
                    HasSubstr("lost rank " + std::to_string(one.lost)));
        // Known everywhere by the time an operation ends with it.
        EXPECT_EQ(cluster.at(rank).status(), status);
        FloatOperation late;
        late.input.assign(4, 1.0f);
        EXPECT_EQ(EnqueueSum(cluster.at(rank), "late", late), status);
      }
      EXPECT_LT(std::chrono::steady_clock::now() - began,
                std::chrono::seconds(1));
    }
  }
}

// Fault: a rank is killed in the last bucket, when the end is agreed on already
// and connections may close. Error: on every other rank, with its name and not
// that of one that gave up because of it; at once and not when its limit for a
// rank that does not move has passed.
TEST_P(RuntimeTest, ARankLostAfterAnAgreedEndIsMissedByWhoNeedsIt) {
  for (size_t count : {4u, 400000u}) {
    LogCapture log;
    HeldCollective::Gate gate;
    RuntimeCluster cluster(
        kFlat, Options(),
        Held(setup(), 3, HeldCollective::Hold::kBefore, gate));
    std::vector<FloatOperation> last(cluster.size());
    for (int rank = 0; rank < cluster.size(); ++rank) {
      last[rank].input.assign(count, 1.0f);
      ASSERT_TRUE(EnqueueSum(cluster.at(rank), "last", last[rank]).ok());
    }
    ASSERT_TRUE(WaitUntilTrue([&] { return gate.reached.load(); }));
    std::thread end([&] { cluster.at(0).Shutdown(""); });
    Pause(std::chrono::milliseconds(100), Deadline::AfterSeconds(1));
    const TimePoint began = std::chrono::steady_clock::now();
    cluster.CutOff(3);
    for (int rank = 0; rank < 3; ++rank) {
      const Status status = Await(last[rank]);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
      // In memory, whoever runs the bucket may see it before the loop does.
      EXPECT_THAT(status.message(),
                  HasSubstr(setup().shares_memory ? "rank 3" : "lost rank 3"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began,
              std::chrono::seconds(2));
    gate.open = true;
    (void)Await(last[3]);  // it lives on here
    end.join();
  }
}

// Small buckets run inline and large ones on the data thread, in any mixture.
// Fault: rank 2 gives up because of another, of which rank 1 tells; rank 0 sees
// both at one look. Error: that which rank 1 tells of.
TEST(Runtime, WhatWasSaidBeforeAPeerWentIsTheCause) {
  LogCapture log;
  RuntimeClusterParts parts = ConnectRuntimes({"a", "a", "a"}, Options(), {});
  const Status cause = UnavailableError("lost rank 7 (host z, pid 1): gone");
  parts.deps[1].channel->Send(0, EncodeMessage(AbortMessage{cause}));
  parts.deps[2].channel.reset();
  const std::shared_ptr<Runtime> runtime =
      Runtime::Start(std::move(parts.deps[0])).value();
  EXPECT_TRUE(WaitUntilTrue([&] { return !runtime->status().ok(); }));
  EXPECT_EQ(runtime->status(), cause);
}

// Rank 0, which has to agree, does not answer.
TEST(Runtime, WhoLeavesWaitsForTheOthersAsLongAsItIsTold) {
  LogCapture log;
  Options options;
  options.shutdown_timeout = 0.2;
  RuntimeClusterParts parts = ConnectRuntimes({"a", "a"}, options, {});
  const std::shared_ptr<Runtime> runtime =
      Runtime::Start(std::move(parts.deps[1])).value();
  const TimePoint began = std::chrono::steady_clock::now();
  runtime->Shutdown("");
  const Duration took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::milliseconds(200));
  // By default it is 5 s.
  EXPECT_LT(took, std::chrono::milliseconds(4500));
  EXPECT_THAT(log.lines(),
              Contains(HasSubstr("in time (KERAS_RING_SHUTDOWN_TIMEOUT)")));
}

// Of a large job not all ranks say at error level what one of them has said.
TEST(Runtime, WhatAllAreToldOneRankOfAHostLogsAsAnError) {
  struct Case {
    const char* host_of_1;
    int small_job;
    bool error;
  };
  for (const Case& one :
       {Case{"a", 3, true}, {"a", 2, false}, {"b", 2, true}}) {
    LogCapture log;
    RuntimeClusterParts parts =
        ConnectRuntimes({"a", one.host_of_1, "a"}, Options(), {});
    parts.deps[1].small_job = one.small_job;
    parts.deps[0].channel->Send(
        1, EncodeMessage(AbortMessage{UnavailableError("lost rank 2")}));
    const std::shared_ptr<Runtime> runtime =
        Runtime::Start(std::move(parts.deps[1])).value();
    EXPECT_TRUE(WaitUntilTrue([&] { return !runtime->status().ok(); }));
    runtime->Shutdown("");
    const std::string text = "the job is broken: lost rank 2";
    EXPECT_THAT(log.lines(), Contains(HasSubstr(text)));
    EXPECT_EQ(log.count(LogLevel::kError), one.error ? 1 : 0);
  }
}

// Keeps what it is told.
class Trace final : public TraceSink {
 public:
  struct One {
    TracePhase phase;
    uint64_t tag;
    TimePoint begin, end;
    int peer;
    std::string name;
    int64_t value;
    size_t tensors;
  };
  Trace() : TraceSink(on_) {}
  using TraceSink::Record;
  void Record(const TraceSpan* spans, size_t count) override {
    MutexLock lock(mutex_);
    for (const TraceSpan* span = spans; span != spans + count; ++span) {
      spans_.push_back({span->phase, span->tag, span->begin, span->end,
                        span->peer, std::string(span->name), span->value,
                        span->tensors});
    }
  }
  void Switch(bool on) { on_ = on; }
  std::vector<One> spans() {
    MutexLock lock(mutex_);
    return spans_;
  }

 private:
  std::atomic<bool> on_{true};
  Mutex mutex_;
  std::vector<One> spans_ KR_GUARDED_BY(mutex_);
};

// Whatever moves the bytes: counted, and traced with the same tags on all
// ranks, one phase after the other.
TEST(RuntimeCounters, SayWhatWasExecutedWhenATensorWasLastAskedFor) {
  RuntimeCluster cluster({"a", "a"}, Options(), RuntimeClusterSetup());
  const Counters& counters = cluster.at(0).counters();
  uint64_t executed = 0;
  for (const char* const name : {"x", "y"}) {
    FloatOperation mine, theirs;
    mine.input.assign(1 << 10, 1.0f);
    theirs.input.assign(1 << 10, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(0), name, mine).ok());
    ASSERT_TRUE(EnqueueSum(cluster.at(1), name, theirs).ok());
    ASSERT_TRUE(Await(mine).ok());
    ASSERT_TRUE(Await(theirs).ok());
    EXPECT_EQ(counters.submitted_execute_ns.load(), executed);
    EXPECT_GT(counters.execute_ns.load(), executed);
    EXPECT_EQ(counters.began_ns.load(), 0u);
    executed = counters.execute_ns.load();
  }
  cluster.ShutdownAll();
}

TEST(Runtime, EveryPhaseOfABucketIsSeen) {
  for (const bool shares_memory : {true, false}) {
    SCOPED_TRACE(shares_memory ? "shm" : "ring");
    Trace trace;
    RuntimeClusterSetup setup;
    setup.shares_memory = shares_memory;
    setup.trace = &trace;
    RuntimeCluster cluster({"a", "a"}, Options(), setup);
    std::vector<FloatOperation> operations(2);
    for (int rank = 0; rank < 2; ++rank) {
      operations[rank].input.assign(1 << 20, 1.0f);
      ASSERT_TRUE(EnqueueSum(cluster.at(rank), "x", operations[rank]).ok());
    }
    for (FloatOperation& operation : operations) {
      ASSERT_TRUE(Await(operation).ok());
    }
    cluster.ShutdownAll();
    std::map<TracePhase, int> seen;
    std::set<uint64_t> buckets;
    for (const Trace::One& span : trace.spans()) {
      ++seen[span.phase];
      buckets.insert(span.tag / 16);
      EXPECT_LE(span.begin, span.end);
    }
    EXPECT_THAT(buckets, testing::ElementsAre(1u));
    for (const TracePhase once :
         {TracePhase::kNegotiate, TracePhase::kQueue, TracePhase::kExecute,
          TracePhase::kCallback}) {
      EXPECT_EQ(seen[once], 2) << static_cast<int>(once);
    }
    EXPECT_GE(seen[TracePhase::kReduce], 2);
    for (int rank = 0; rank < 2; ++rank) {
      const Counters& counters = cluster.at(rank).counters();
      EXPECT_GT(counters.execute_ns, counters.reduce_ns);
      EXPECT_GT(counters.reduce_ns, 0u);
    }
  }
}

// Each tensor by its name, the bucket with what it is made of, and who was
// last.
TEST(Runtime, ATraceTellsOfTensorsAndBuckets) {
  Trace trace;
  RuntimeClusterSetup setup;
  setup.trace = &trace;
  setup.shares_memory = true;
  RuntimeCluster cluster({"a", "a"}, Options(), setup);
  FloatOperation early, late;
  early.input.assign(1 << 20, 1.0f);
  late.input.assign(1 << 20, 1.0f);
  ASSERT_TRUE(EnqueueSum(cluster.at(0), "x", early).ok());
  ASSERT_TRUE(
      WaitUntilTrue([&] { return cluster.at(0).counters().pending == 1; }));
  const TimePoint until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  ASSERT_TRUE(EnqueueSum(cluster.at(1), "x", late).ok());
  ASSERT_TRUE(Await(early).ok());
  ASSERT_TRUE(Await(late).ok());
  EXPECT_EQ(cluster.at(0).counters().pending, 0u);
  EXPECT_GE(cluster.at(0).counters().done_ns.load(),
            cluster.at(0).counters().submitted_ns.load());
  cluster.ShutdownAll();
  std::map<TracePhase, int> seen;
  for (const Trace::One& span : trace.spans()) {
    ++seen[span.phase];
    if (span.phase == TracePhase::kNegotiate) {
      EXPECT_EQ(span.name, "x");
      EXPECT_EQ(span.value, 4 << 20);
    } else if (span.phase == TracePhase::kExecute) {
      EXPECT_EQ(span.name, "allreduce 'x'");
      EXPECT_EQ(span.value, 4 << 20);
      EXPECT_EQ(span.tensors, 1u);
    } else if (span.phase == TracePhase::kLate) {
      EXPECT_EQ(span.peer, 1);
      EXPECT_GE(span.value, 15'000'000);
    } else if (span.phase == TracePhase::kWait) {
      EXPECT_THAT(span.peer, testing::AnyOf(0, 1));
    } else if (span.phase == TracePhase::kAlgorithm) {
      EXPECT_EQ(span.tag / 16, 1u);
      EXPECT_EQ(span.name, "shm two_shots");
    }
  }
  EXPECT_EQ(seen[TracePhase::kLate], 2);
  EXPECT_EQ(seen[TracePhase::kAlgorithm], 2);
  EXPECT_EQ(seen[TracePhase::kCycle], 2);
}

TEST(Runtime, NothingIsToldToASinkThatDoesNotListen) {
  Trace trace;
  trace.Switch(false);
  RuntimeClusterSetup setup;
  setup.trace = &trace;
  RuntimeCluster cluster({"a", "a"}, Options(), setup);
  std::vector<FloatOperation> operations(2);
  for (int rank = 0; rank < 2; ++rank) {
    operations[rank].input.assign(1 << 20, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "x", operations[rank]).ok());
  }
  for (FloatOperation& operation : operations) {
    ASSERT_TRUE(Await(operation).ok());
  }
  cluster.ShutdownAll();
  EXPECT_TRUE(trace.spans().empty());
}

// Fault: a collective of a process set fails, and there is no job any more that
// could break with it. Error: its own, and the set ends.
TEST(Runtime, ASetWhoseJobIsGoneBreaksByItself) {
  LogCapture log;
  RuntimeClusterSetup setup;
  setup.wrap_collective = [](int rank, std::unique_ptr<Collective>) {
    auto collective = std::make_unique<FakeCollective>(rank);
    collective->Fail(UnavailableError("a broken stream"));
    return collective;
  };
  const RankSet set(1, {0, 2});
  RuntimeClusterParts parts =
      ConnectRuntimes({"a", "a"}, Options(), setup, set);
  std::vector<std::shared_ptr<Runtime>> runtimes;
  for (RuntimeDeps& deps : parts.deps) {
    deps.report_loss = [](const Status&) { return false; };
    runtimes.push_back(Runtime::Start(std::move(deps)).value());
  }
  RunRanks(2, [&](int rank) {
    FloatOperation operation;
    operation.input = {1.0f};
    ASSERT_TRUE(EnqueueSum(*runtimes[rank], "x", operation).ok());
    EXPECT_THAT(Await(operation).message(), HasSubstr("a broken stream"));
    runtimes[rank]->Shutdown("");
  });
}

// Fault: the disk for the flight records does not answer. The rank still hears
// why the job broke, and leaves.
TEST(Runtime, ADiskThatHangsHoldsNobody) {
  struct Disk {
    Mutex mutex;
    CondVar changed;
    bool hangs KR_GUARDED_BY(mutex) = true;
    int writing KR_GUARDED_BY(mutex) = 0;
  };
  const auto disk = std::make_shared<Disk>();
  LogCapture log;
  RuntimeClusterParts parts = ConnectRuntimes({"a", "a"}, Options(), {});
  std::vector<std::shared_ptr<Runtime>> runtimes;
  for (RuntimeDeps& deps : parts.deps) {
    deps.write_flight_log = [disk](const FlightLog&) -> Result<std::string> {
      MutexLock lock(disk->mutex);
      ++disk->writing;
      disk->changed.NotifyAll();
      disk->changed.Wait(disk->mutex, [&disk]() KR_REQUIRES(disk->mutex) {
        return !disk->hangs;
      });
      --disk->writing;
      disk->changed.NotifyAll();
      return std::string("there");
    };
    runtimes.push_back(Runtime::Start(std::move(deps)).value());
  }
  for (int fd : parts.control[1]) ASSERT_EQ(shutdown(fd, SHUT_RDWR), 0);
  RunRanks(2, [&](int rank) {
    EXPECT_TRUE(WaitUntilTrue([&] { return !runtimes[rank]->status().ok(); }));
    // What would have to be answered by the loop.
    FloatOperation operation;
    operation.input = {1.0f};
    EXPECT_FALSE(EnqueueSum(*runtimes[rank], "x", operation).ok());
    runtimes[rank]->Shutdown("");
  });
  runtimes.clear();
  {
    MutexLock lock(disk->mutex);
    EXPECT_EQ(disk->writing, 2);
    disk->hangs = false;
    disk->changed.NotifyAll();
    disk->changed.Wait(disk->mutex, [&disk]() KR_REQUIRES(disk->mutex) {
      return disk->writing == 0;
    });
  }
  EXPECT_TRUE(WaitUntilTrue([&] {
    const auto lines = log.lines();
    return std::count_if(lines.begin(), lines.end(),
                         [](const std::string& line) {
                           return line.find("are in there") != line.npos;
                         }) == 2;
  }));
}

// The stack that threads have who ask for none.
void SetDefaultStack(size_t bytes) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_getattr_default_np(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
  pthread_attr_destroy(&attributes);
}

size_t DefaultStack() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  KR_CHECK(pthread_getattr_default_np(&attributes) == 0);
  KR_CHECK(pthread_attr_getstacksize(&attributes, &bytes) == 0);
  pthread_attr_destroy(&attributes);
  return bytes;
}

// More than there are addresses.
constexpr size_t kNoStack = size_t{1} << 50;

// Asked for the time, it sees to it that there are no more threads: the loop
// does so before it starts its own.
class LastClock final : public Clock {
 public:
  TimePoint Now() const override {
    SetDefaultStack(kNoStack);
    return std::chrono::steady_clock::now();
  }
};

// Fault: the system has no thread for a rank's loop, or for what runs its
// buckets. Error: at its start, and on the other rank, with the cause.
TEST(Runtime, ARankWithoutAThreadDoesNotStartAndSaysWhy) {
  const size_t before = DefaultStack();
  for (const std::string thread : {"kr-exec", "kr-loop"}) {
    LogCapture log;
    RuntimeClusterParts parts = ConnectRuntimes({"a", "a"}, Options(), {});
    const std::shared_ptr<Runtime> runtime =
        Runtime::Start(std::move(parts.deps[0])).value();
    if (thread == "kr-exec") SetDefaultStack(kNoStack);
    parts.deps[1].clock = std::make_unique<LastClock>();
    const Status status = Runtime::Start(std::move(parts.deps[1])).status();
    SetDefaultStack(before);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("the thread " + thread));
    EXPECT_TRUE(WaitUntilTrue([&] { return !runtime->status().ok(); }));
    EXPECT_THAT(runtime->status().message(),
                AllOf(HasSubstr("rank 1 could not start"), HasSubstr(thread)));
  }
}

// Fault: a rank stops when the end is agreed on, and the last bucket still runs
// and needs it. Error: after the heartbeat limit, with its name.
TEST(Runtime, ARankThatStopsAfterAnAgreedEndIsMissedByWhoNeedsIt) {
  const Options options;
  ManualClock time;
  const std::vector<std::string> hosts = {"a", "a"};
  RuntimeClusterSetup setup;
  setup.clock = &time;
  FakeCollective* running = nullptr;
  setup.wrap_collective = [&](int rank, std::unique_ptr<Collective>) {
    auto collective = std::make_unique<FakeCollective>(rank);
    collective->Block();
    if (rank == 0) running = collective.get();
    return collective;
  };
  LogCapture log;
  RuntimeClusterParts parts = ConnectRuntimes(hosts, options, setup);
  // All that rank 1 says: it asks for the bucket, and leaves.
  SystemClock clock;
  Counters counters;
  Controller other(BuildControlTree(hosts, 1), ControllerOptions(), clock,
                   counters);
  auto tell = [&] {
    for (const auto& [peer, message] : other.Take().messages) {
      parts.deps[1].channel->Send(peer, message);
    }
  };
  MessageChannel& channel = *parts.deps[0].channel;
  const std::shared_ptr<Runtime> runtime =
      Runtime::Start(std::move(parts.deps[0])).value();
  FloatOperation last;
  last.input.assign(4, 1.0f);
  ASSERT_TRUE(EnqueueSum(*runtime, "last", last).ok());
  other.Submit(std::make_shared<const Request>(AllreduceRequest("last", 4)));
  tell();
  ASSERT_TRUE(running->AwaitCalls(1));
  other.Leave("");
  tell();
  EXPECT_TRUE(WaitUntilTrue([&] { return !runtime->status().ok(); }));
  EXPECT_THAT(runtime->status().message(), HasSubstr("the job is over"));
  // The loop looks at its peers every 10 s, and tells them that it does.
  int pings = 0;
  const auto count_pings = [&] {
    const TimePoint now = time.Now();
    for (const auto& event : parts.deps[1].channel->Poll(&now)) {
      if (event.message == EncodeMessage(PingMessage{})) ++pings;
    }
    return pings;
  };
  for (int i = 1; i <= 2; ++i) {
    time.Advance(std::chrono::seconds(10));
    channel.Wake();
    ASSERT_TRUE(WaitUntilTrue([&] { return count_pings() == i; }));
  }
  time.Advance(std::chrono::milliseconds(9'999));
  channel.Wake();
  EXPECT_EQ(last.status.wait_for(std::chrono::milliseconds(20)),
            std::future_status::timeout);
  time.Advance(std::chrono::milliseconds(1));
  channel.Wake();
  const Status status = Await(last);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("lost rank 1"),
                    HasSubstr("nothing was heard from it for 30 s")));
}

// Fault: the whole job stands still for an hour, by the clock that all ranks
// go by, while a tensor waits for a rank. No error: nobody was silent while the
// others listened.
TEST_P(RuntimeTest, AJobThatWasPausedAsAWholeGoesOn) {
  LogCapture log;
  ManualClock time;
  RuntimeClusterSetup paused = setup();
  paused.clock = &time;
  Options options;
  options.stall_check_time = 40;
  options.stall_shutdown_time = 60;
  RuntimeCluster cluster(kFlat, options, paused);
  const auto all = [&](const std::string& name) {
    RunRanks(cluster.size(), [&](int rank) {
      FloatOperation operation;
      operation.input.assign(3, 1.0f);
      ASSERT_TRUE(EnqueueSum(cluster.at(rank), name, operation).ok());
      const Status status = Await(operation);
      EXPECT_TRUE(status.ok()) << status.ToString();
    });
  };
  all("before");
  FloatOperation waits;
  waits.input.assign(3, 1.0f);
  ASSERT_TRUE(EnqueueSum(cluster.at(0), "late", waits).ok());
  all("meanwhile");  // the coordinator has heard of the one that waits
  time.Advance(std::chrono::hours(1));
  all("after");
  RunRanks(cluster.size(), [&](int rank) {
    if (rank == 0) return;
    FloatOperation late;
    late.input.assign(3, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "late", late).ok());
    EXPECT_TRUE(Await(late).ok());
  });
  const Status status = Await(waits);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_THAT(log.lines(), Contains(HasSubstr("this process did not run")));
}

TEST_P(RuntimeTest, BucketsOfAllSizesAreExact) {
  constexpr int kTensors = 12;
  Options options;
  options.fusion_threshold = 1 << 20;
  RuntimeCluster cluster(kFlat, options, setup());
  RunRanks(cluster.size(), [&](int rank) {
    for (int seed = 0; seed < 3; ++seed) {
      std::mt19937 random(1000 * seed + rank);
      std::vector<int> order(kTensors);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<FloatOperation> operations(kTensors);
      for (int tensor : order) {
        const size_t sizes[] = {3, 5000, 100000, 300000};
        operations[tensor].input.assign(sizes[tensor % 4],
                                        float(rank + 1) * tensor);
        ASSERT_TRUE(EnqueueSum(cluster.at(rank), std::to_string(tensor),
                               operations[tensor])
                        .ok());
      }
      for (int tensor = 0; tensor < kTensors; ++tensor) {
        Status status = Await(operations[tensor]);
        ASSERT_TRUE(status.ok()) << "seed " << seed << status.ToString();
        const std::vector<float>& output = operations[tensor].output;
        ASSERT_EQ(std::count(output.begin(), output.end(), 10.0f * tensor),
                  static_cast<std::ptrdiff_t>(output.size()))
            << "seed " << seed;
      }
    }
  });
}

TEST_P(RuntimeTest, LostDataConnectionIsAnErrorOnEveryRank) {
  LogCapture log;
  RuntimeClusterSetup faulty = setup();
  faulty.wrap_transport = [](int rank, std::unique_ptr<Transport> transport) {
    Fault fault;
    if (rank == 2) {
      fault.kind = Fault::Kind::kVanish;
      fault.run = 1;
      fault.after_receives = 2;
    }
    return std::make_unique<FaultyTransport>(std::move(transport), fault);
  };
  // On several hosts tensors go by transport whatever else is shared.
  RuntimeCluster cluster(kTwoHosts, Options(), faulty);
  RunRanks(4, [&](int rank) {
    FloatOperation good;
    good.input.assign(5000, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "good", good).ok());
    ASSERT_TRUE(Await(good).ok());
    // So large that rank 2 has not sent all of it when it vanishes.
    FloatOperation bad;
    bad.input.assign(1000000, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "bad", bad).ok());
    Status status = Await(bad);
    // Whose word comes first is open: that of rank 2, or of its neighbours.
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("rank 2"));
    // Sticky, with the first cause.
    FloatOperation after;
    after.input.assign(4, 1.0f);
    EXPECT_EQ(EnqueueSum(cluster.at(rank), "after", after).message(),
              cluster.at(rank).status().message());
  });
}

// Enqueue must never call back inline: a lock held around it and taken in the
// completion would then deadlock.
TEST_P(RuntimeTest, EnqueueDoesNotCallBackInline) {
  RuntimeCluster cluster({"a"}, Options(), setup());
  std::mutex mutex;
  float value = 1.0f, result = 0.0f;
  std::promise<void> finished;
  {
    std::lock_guard<std::mutex> lock(mutex);
    TensorEntry entry;
    auto request = std::make_shared<Request>(AllreduceRequest("x", 1));
    request->tensors.front().shape.clear();
    entry.request = request;
    entry.inputs = {&value};
    entry.outputs = {&result};
    entry.completion = Completion([&](const Status&) {
      std::lock_guard<std::mutex> inner(mutex);
      finished.set_value();
    });
    ASSERT_TRUE(cluster.at(0).Enqueue(std::move(entry)).ok());
  }
  EXPECT_EQ(finished.get_future().wait_for(std::chrono::seconds(30)),
            std::future_status::ready);
  EXPECT_EQ(result, 1.0f);
}

TEST_P(RuntimeTest, EnqueueAgainstShutdown) {
  for (int round = 0; round < 100; ++round) {
    RuntimeCluster cluster({"a", "a"}, Options(), setup());
    std::atomic<int> accepted{0}, fired{0};
    std::vector<float> buffer(8);
    RunRanks(4, [&](int thread) {
      if (thread >= 2) {
        cluster.at(thread - 2).Shutdown("");
        return;
      }
      for (int i = 0; i < 20; ++i) {
        TensorEntry entry;
        auto request = std::make_shared<Request>();
        request->name = std::to_string(i);
        request->kind = RequestKind::kBarrier;
        entry.request = request;
        entry.completion = Completion([&](const Status&) { ++fired; });
        if (cluster.at(thread).Enqueue(std::move(entry)).ok()) ++accepted;
      }
    });
    cluster.ShutdownAll();
    ASSERT_EQ(fired, accepted);
  }
}

}  // namespace
}  // namespace keras_ring
