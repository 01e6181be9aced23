#include "csrc/runtime/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "csrc/runtime/process_runtime.h"
#include "csrc/testing/faulty_transport.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/runtime_cluster.h"

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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

// The same tensors, on each rank in a random order of its own, many times:
// never a hang, every sum exact. On one host and on two.
TEST(Runtime, RandomOrdersAreExact) {
  constexpr int kTensors = 40;
  for (const auto& hosts : {kFlat, kTwoHosts}) {
    RuntimeCluster cluster(hosts, Options());
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

TEST(Runtime, MismatchIsTheSameErrorAndTheJobGoesOn) {
  RuntimeCluster cluster(kTwoHosts, Options());
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

TEST(Runtime, ShutdownOfOneRankEndsWhatOthersWaitFor) {
  RuntimeCluster cluster(kFlat, Options());
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
// first rank to have it leaves at once.
TEST(Runtime, LeavingRightAfterTheLastResultHurtsNobody) {
  for (int round = 0; round < 50; ++round) {
    RuntimeCluster cluster(kTwoHosts, Options());
    RunRanks(4, [&](int rank) {
      FloatOperation last;
      last.input.assign(20000, 1.0f);
      ASSERT_TRUE(EnqueueSum(cluster.at(rank), "last", last).ok());
      Status status = Await(last);
      ASSERT_TRUE(status.ok()) << status.ToString();
      cluster.at(rank).Shutdown("");
    });
  }
}

TEST(Runtime, LostDataConnectionIsAnErrorOnEveryRank) {
  LogCapture log;
  RuntimeCluster cluster(
      kFlat, Options(), [](int rank, std::unique_ptr<Transport> transport) {
        Fault fault;
        if (rank == 2) {
          fault.kind = Fault::Kind::kVanish;
          fault.run = 1;
          fault.after_receives = 2;
        }
        return std::make_unique<FaultyTransport>(std::move(transport), fault);
      });
  RunRanks(4, [&](int rank) {
    FloatOperation good;
    good.input.assign(5000, 1.0f);
    ASSERT_TRUE(EnqueueSum(cluster.at(rank), "good", good).ok());
    ASSERT_TRUE(Await(good).ok());
    FloatOperation bad;
    bad.input.assign(5000, 1.0f);
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
TEST(Runtime, EnqueueDoesNotCallBackInline) {
  RuntimeCluster cluster({"a"}, Options());
  std::mutex mutex;
  float value = 1.0f, result = 0.0f;
  std::promise<void> finished;
  {
    std::lock_guard<std::mutex> lock(mutex);
    TensorEntry entry;
    entry.request.name = "x";
    entry.request.tensors = {TensorSpec{DType::kFloat32, {}}};
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

TEST(Runtime, EnqueueAgainstShutdown) {
  for (int round = 0; round < 100; ++round) {
    RuntimeCluster cluster({"a", "a"}, Options());
    std::atomic<int> accepted{0}, fired{0};
    std::vector<float> buffer(8);
    RunRanks(4, [&](int thread) {
      if (thread >= 2) {
        cluster.at(thread - 2).Shutdown("");
        return;
      }
      for (int i = 0; i < 20; ++i) {
        TensorEntry entry;
        entry.request.name = std::to_string(i);
        entry.request.kind = RequestKind::kBarrier;
        entry.completion = Completion([&](const Status&) { ++fired; });
        if (cluster.at(thread).Enqueue(std::move(entry)).ok()) ++accepted;
      }
    });
    cluster.ShutdownAll();
    ASSERT_EQ(fired, accepted);
  }
}

TEST(ProcessRuntime, OneAtATime) {
  EXPECT_EQ(ProcessRuntime(), nullptr);
  RuntimeCluster cluster({"a", "a"}, Options());
  std::shared_ptr<Runtime> runtime(&cluster.at(0), [](Runtime*) {});
  ASSERT_TRUE(InstallProcessRuntime(runtime).ok());
  EXPECT_EQ(InstallProcessRuntime(runtime).code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(TakeProcessRuntime(), runtime);
  EXPECT_EQ(ProcessRuntime(), nullptr);
  ASSERT_TRUE(InstallProcessRuntime(runtime).ok()) << "free again";
  TakeProcessRuntime();
}

}  // namespace
}  // namespace keras_ring
