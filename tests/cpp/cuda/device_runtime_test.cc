// Runtimes of one job whose tensors are in the memory of devices: from the
// stream of a caller to its result. On a fake device, or on a real one if
// KERAS_RING_TEST_DRIVER is "real".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/cuda/cuda_access.h"
#include "csrc/cuda/gpu.h"
#include "csrc/testing/controller_cluster.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/log_capture.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/runtime_cluster.h"

namespace keras_ring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using cuda::Gpu;
using cuda::TestedDriver;

// What a program on a device does: it works on a stream of its own.
class Program {
 public:
  Program()
      : gpu_(Gpu::Open(TestedDriver(), 0).value()),
        current_(*gpu_),
        stream_(cuda::OwnStream::Create(gpu_).value()) {}
  ~Program() {
    // What it copies from is kept until then.
    TestedDriver().cuStreamSynchronize(stream_.get());
    for (void* memory : memory_) gpu_->Free(memory);
  }

  void* stream() const { return stream_.get(); }
  float* Allocate(size_t count) {
    void* const memory = *gpu_->Allocate(count * sizeof(float));
    memory_.push_back(memory);
    return static_cast<float*>(memory);
  }
  // The stream writes `values`, after other work.
  void WriteLater(float* tensor, const std::vector<float>& values) {
    const Gpu::Current current(*gpu_);
    kept_.push_back(values);
    const size_t bytes = values.size() * sizeof(float);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(TestedDriver().cuMemsetD8Async(cuda::ToDevice(tensor), 9, bytes,
                                               stream_.get()),
                cuda::kSuccess);
    }
    EXPECT_EQ(
        TestedDriver().cuMemcpyHtoDAsync(
            cuda::ToDevice(tensor), kept_.back().data(), bytes, stream_.get()),
        cuda::kSuccess);
  }
  std::vector<float> Read(const float* tensor, size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(gpu_->Read(values.data(), tensor, count * sizeof(float)).ok());
    return values;
  }

 private:
  std::shared_ptr<Gpu> gpu_;
  Gpu::Current current_;
  cuda::OwnStream stream_;
  std::vector<void*> memory_;
  std::vector<std::vector<float>> kept_;
};

struct Outcome {
  std::promise<Status> promise;
  std::future<Status> future = promise.get_future();
  Completion completion() {
    return Completion(
        [this](const Status& status) { promise.set_value(status); });
  }
  Status Get() {
    if (future.wait_for(std::chrono::seconds(30)) !=
        std::future_status::ready) {
      return DeadlineExceededError("it did not end");
    }
    return future.get();
  }
};

TensorEntry SumEntry(const std::string& name, float* tensor, int64_t count,
                     Outcome& outcome) {
  Request request = AllreduceRequest(name, count);
  request.device = DeviceKind::kCuda;
  TensorEntry entry;
  entry.request = std::make_shared<const Request>(std::move(request));
  entry.inputs = {tensor};
  entry.outputs = {tensor};
  entry.completion = outcome.completion();
  return entry;
}

// As an adapter does: the event is recorded on the thread of the caller.
Status EnqueueSum(Runtime& runtime, const std::string& name, Program& program,
                  float* tensor, int64_t count, Outcome& outcome) {
  TensorEntry entry = SumEntry(name, tensor, count, outcome);
  auto ready = runtime.Record({DeviceKind::kCuda, 0}, program.stream());
  if (!ready.ok()) {
    entry.completion.Disarm();
    return ready.status();
  }
  entry.ready = *ready;
  return runtime.Enqueue(std::move(entry));
}

RuntimeClusterSetup OnDevices() {
  RuntimeClusterSetup setup;
  setup.shares_memory = true;
  setup.driver = &TestedDriver();
  return setup;
}

class DeviceRuntime : public testing::Test {
 protected:
  void SetUp() override { cuda::fake::SetDelays(1, 100); }
  void TearDown() override { cuda::fake::SetDelays(1, 0); }
  RuntimeCluster cluster_{{"a", "a", "a"}, Options(), OnDevices()};
};

// On each rank in an order of its own: small tensors that are put together,
// large ones that are read where they are, and some of the host among them.
TEST_F(DeviceRuntime, TensorsInRandomOrdersThatAreWrittenLater) {
  constexpr int kTensors = 12;
  RunRanks(cluster_.size(), [&](int rank) {
    Program program;
    for (int step = 0; step < 5; ++step) {
      std::mt19937 random(100 * step + rank);
      std::vector<int> order(kTensors);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Outcome> outcomes(kTensors);
      std::vector<FloatOperation> of_host(kTensors);
      std::vector<float*> tensors(kTensors);
      std::vector<size_t> counts(kTensors);
      for (int t : order) {
        const std::string name = std::to_string(t);
        const float value = static_cast<float>((rank + 1) * (t + step));
        counts[t] = t % 5 == 0 ? 70001 : 10 * t + 1;
        if (t % 4 == 3) {
          of_host[t].input.assign(counts[t], value);
          ASSERT_TRUE(
              keras_ring::EnqueueSum(cluster_.at(rank), name, of_host[t]).ok());
          continue;
        }
        tensors[t] = program.Allocate(counts[t]);
        program.WriteLater(tensors[t], std::vector<float>(counts[t], value));
        ASSERT_TRUE(EnqueueSum(cluster_.at(rank), name, program, tensors[t],
                               counts[t], outcomes[t])
                        .ok());
      }
      for (int t = 0; t < kTensors; ++t) {
        const std::vector<float> sums(counts[t],
                                      static_cast<float>(6 * (t + step)));
        if (t % 4 == 3) {
          ASSERT_TRUE(Await(of_host[t]).ok());
          ASSERT_EQ(of_host[t].output, sums);
          continue;
        }
        const Status status = outcomes[t].Get();
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(program.Read(tensors[t], counts[t]), sums);
      }
    }
  });
}

// A stream waits for a stream: an event that a thread waits for is a failure.
TEST_F(DeviceRuntime, NoThreadWaitsForADevice) {
  class Native final : public Event {
   public:
    explicit Native(std::shared_ptr<const Event> event)
        : event_(std::move(event)) {}
    Status Wait() const override {
      return InternalError("a thread has waited for a device");
    }
    void* native() const override { return event_->native(); }

   private:
    const std::shared_ptr<const Event> event_;
  };
  constexpr int kTensors = 8;
  constexpr size_t kCount = 50000;
  RunRanks(cluster_.size(), [&](int rank) {
    Program program;
    std::vector<Outcome> outcomes(kTensors);
    std::vector<float*> tensors;
    for (int t = 0; t < kTensors; ++t) {
      tensors.push_back(program.Allocate(kCount));
      program.WriteLater(tensors[t], std::vector<float>(kCount, 1.0F));
      TensorEntry entry =
          SumEntry(std::to_string(t), tensors[t], kCount, outcomes[t]);
      auto ready =
          cluster_.at(rank).Record({DeviceKind::kCuda, 0}, program.stream());
      ASSERT_TRUE(ready.ok());
      entry.ready = std::make_shared<Native>(*ready);
      ASSERT_TRUE(cluster_.at(rank).Enqueue(std::move(entry)).ok());
    }
    for (int t = 0; t < kTensors; ++t) {
      const Status status = outcomes[t].Get();
      ASSERT_TRUE(status.ok()) << status.ToString();
      ASSERT_EQ(program.Read(tensors[t], kCount),
                std::vector<float>(kCount, 3.0F));
    }
  });
}

// It takes part with zeros on its device.
TEST_F(DeviceRuntime, ARankThatHasJoinedChangesNothing) {
  RunRanks(cluster_.size(), [&](int rank) {
    Program program;
    const auto sum = [&](const std::string& name) {
      Outcome outcome;
      float* const tensor = program.Allocate(3);
      program.WriteLater(tensor, {1, 2, 3});
      EXPECT_TRUE(
          EnqueueSum(cluster_.at(rank), name, program, tensor, 3, outcome)
              .ok());
      const Status status = outcome.Get();
      EXPECT_TRUE(status.ok()) << status.ToString();
      return program.Read(tensor, 3);
    };
    EXPECT_EQ(sum("all"), (std::vector<float>{3, 6, 9}));
    if (rank != 2) {
      EXPECT_EQ(sum("two"), (std::vector<float>{2, 4, 6}));
    }
    Outcome joined;
    int32_t last = -1;
    Request request;
    request.kind = RequestKind::kJoin;
    request.name = "join";
    TensorEntry entry;
    entry.request = std::make_shared<const Request>(request);
    entry.outputs = {&last};
    entry.completion = joined.completion();
    ASSERT_TRUE(cluster_.at(rank).Enqueue(std::move(entry)).ok());
    EXPECT_TRUE(joined.Get().ok());
  });
}

// All on the first of two, as frameworks choose. On a machine with one there is
// nothing to choose.
TEST_F(DeviceRuntime, RanksThatShareADeviceAreToldOfOthers) {
  if (cuda::TestsRealDriver()) GTEST_SKIP() << "it may have one device";
  const LogCapture log(LogLevel::kWarning);
  RunRanks(cluster_.size(), [&](int rank) {
    Program program;
    float* const tensor = program.Allocate(1);
    program.WriteLater(tensor, {1});
    Outcome outcome;
    ASSERT_TRUE(
        EnqueueSum(cluster_.at(rank), "a", program, tensor, 1, outcome).ok());
    ASSERT_TRUE(outcome.Get().ok());
  });
  EXPECT_THAT(log.lines(), testing::ElementsAre(
                               AllOf(HasSubstr("ranks 0-2 use one GPU, GPU-01"),
                                     HasSubstr("give each rank its own"))));
}

TEST_F(DeviceRuntime, HowItIsDoneIsExplained) {
  EXPECT_THAT(*cluster_.at(1).Explain(),
              HasSubstr("3 ranks of one host, through shared memory"));
  EXPECT_THAT(*cluster_.at(1).Explain(DeviceKind::kCuda),
              HasSubstr("whose devices read each other's memory"));
}

// The rows that came from each rank are told in host memory. The allocator
// gives memory again that its last user has given work to.
TEST_F(DeviceRuntime, AlltoallWithSplits) {
  RunRanks(cluster_.size(), [&](int rank) {
    Program program;
    Request request;
    request.kind = RequestKind::kAlltoall;
    request.name = "exchange";
    request.device = DeviceKind::kCuda;
    // Rank r sends r + 1 rows to each.
    const int64_t rows = rank + 1;
    request.tensors = {TensorSpec{DType::kFloat32, {3 * rows, 2}}};
    request.splits = {rows, rows, rows};
    float* const input = program.Allocate(6 * rows);
    program.WriteLater(input, std::vector<float>(6 * rows, 1.0F * rank));
    Outcome outcome;
    float* output = nullptr;
    std::vector<int64_t> received(3);
    TensorEntry entry;
    entry.request = std::make_shared<const Request>(request);
    entry.inputs = {input};
    entry.allocate = [&](int result, int64_t count) -> Result<void*> {
      if (result == 1) return static_cast<void*>(received.data());
      output = program.Allocate(count * 2);
      for (int i = 0; i < 300; ++i) {
        program.WriteLater(output, std::vector<float>(count * 2, -1.0F));
      }
      return static_cast<void*>(output);
    };
    entry.completion = outcome.completion();
    auto ready =
        cluster_.at(rank).Record({DeviceKind::kCuda, 0}, program.stream());
    ASSERT_TRUE(ready.ok());
    entry.ready = *ready;
    entry.stream = program.stream();
    ASSERT_TRUE(cluster_.at(rank).Enqueue(std::move(entry)).ok());
    const Status status = outcome.Get();
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(received, (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(program.Read(output, 12),
              (std::vector<float>{0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}));
  });
}

// No other rank has heard of it, and the job goes on.
TEST_F(DeviceRuntime, ADeviceThatIsNotThereIsRefused) {
  Program program;
  Outcome outcome;
  TensorEntry entry = SumEntry("there", program.Allocate(2), 2, outcome);
  entry.device_ordinal = 99;
  EXPECT_THAT(cluster_.at(1).Enqueue(std::move(entry)).ToString(),
              AllOf(HasSubstr("INVALID_ARGUMENT"),
                    HasSubstr("allreduce 'there' of rank 1"),
                    HasSubstr("gpu:99"), HasSubstr("this process sees")));
  EXPECT_NE(outcome.future.wait_for(std::chrono::milliseconds(50)),
            std::future_status::ready);
  EXPECT_TRUE(cluster_.at(1).status().ok());
}

TEST_F(DeviceRuntime, ALostRankIsAnErrorForTensorsInFlight) {
  Program program;
  std::vector<Outcome> outcomes(2);
  float* const tensors[] = {program.Allocate(100), program.Allocate(100)};
  for (int rank = 0; rank < 2; ++rank) {
    program.WriteLater(tensors[rank], std::vector<float>(100, 1.0F));
    ASSERT_TRUE(EnqueueSum(cluster_.at(rank), "a", program, tensors[rank], 100,
                           outcomes[rank])
                    .ok());
  }
  cluster_.CutOff(2);
  for (Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.Get().code(), StatusCode::kUnavailable);
  }
}

// Events are used again, once nobody waits for them.
TEST(CudaAccessTest, AnEventIsOfOneStreamWhileACallWaitsForIt) {
  if (cuda::TestsRealDriver()) GTEST_SKIP() << "its work is the fake's";
  cuda::CudaAccess devices(TestedDriver());
  Program slow;
  Program other;
  ASSERT_TRUE(devices.Record(0, other.stream()).ok());  // and is given back
  std::atomic<bool> done{false};
  cuda::fake::GiveWork(static_cast<cuda::Stream>(slow.stream()), [&done] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = true;
    return true;
  });
  const auto of_slow = devices.Record(0, slow.stream());
  const auto of_other = devices.Record(0, other.stream());
  ASSERT_TRUE(of_slow.ok());
  ASSERT_TRUE(of_other.ok());
  ASSERT_TRUE((*of_slow)->Wait().ok());
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace keras_ring
