// A step of training takes no memory from the heap for each of its tensors, nor
// an alltoall for each pair of ranks.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/collective/collective.h"
#include "csrc/control/message.h"
#include "csrc/control/request.h"
#include "csrc/runtime/executor.h"
#include "csrc/testing/controller_cluster.h"
#include "csrc/testing/run_ranks.h"
#include "csrc/testing/runtime_cluster.h"

namespace {
std::atomic<uint64_t> allocations{0};
std::atomic<uint64_t> allocated_bytes{0};
}  // namespace

// Of the whole program, on whatever thread. Those of arrays call these, unless
// a sanitizer has its own.
[[gnu::noinline]] void* operator new(size_t size,
                                     const std::nothrow_t&) noexcept {
  ++allocations;
  allocated_bytes += size;
  return std::malloc(size);
}
[[gnu::noinline]] void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace keras_ring {
namespace {

// One rank's tensors, all reduced in each step; as an op kernel does it, with
// requests that are made once and completions that are small.
class Model final {
 public:
  Model(Runtime& runtime, int tensors) : runtime_(runtime) {
    for (int i = 0; i < tensors; ++i) {
      requests_.push_back(std::make_shared<const Request>(
          AllreduceRequest("layer_" + std::to_string(i) + "/kernel", 4)));
      values_.push_back({1.0f, 2.0f, 3.0f, 4.0f});
    }
  }

  Status Step() {
    {
      MutexLock lock(mutex_);
      left_ = requests_.size();
    }
    for (size_t i = 0; i < requests_.size(); ++i) {
      TensorEntry entry;
      entry.request = requests_[i];
      entry.inputs.push_back(values_[i].data());
      entry.outputs.push_back(values_[i].data());
      entry.completion =
          Completion([this](const Status& status) { End(status); });
      KR_RETURN_IF_ERROR(runtime_.Enqueue(std::move(entry)));
    }
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) { return left_ == 0; });
    return status_;
  }

 private:
  void End(const Status& status) {
    MutexLock lock(mutex_);
    if (!status.ok()) status_ = status;
    if (--left_ == 0) changed_.NotifyAll();
  }

  Runtime& runtime_;
  std::vector<RequestPtr> requests_;
  std::vector<std::array<float, 4>> values_;
  Mutex mutex_;
  CondVar changed_;
  size_t left_ KR_GUARDED_BY(mutex_) = 0;
  Status status_ KR_GUARDED_BY(mutex_);
};

struct Usage {
  double allocations = 0;  // by both ranks together
  double buckets = 0;
};

// Per step, after a warm-up.
Usage UsageOf(int tensors) {
  constexpr int kWarmUp = 50, kSteps = 100;
  RuntimeClusterSetup setup;
  setup.shares_memory = true;
  // They outlive the threads that end their operations.
  std::vector<std::unique_ptr<Model>> models;
  RuntimeCluster cluster({"a", "a"}, Options(), setup);
  const Counters::Count& buckets = cluster.at(0).counters().buckets;
  uint64_t allocations_before = 0, buckets_before = 0;
  for (int steps : {kWarmUp, kSteps}) {
    for (int rank = 0; rank < 2; ++rank) {
      models.push_back(std::make_unique<Model>(cluster.at(rank), tensors));
    }
    allocations_before = allocations;
    buckets_before = buckets;
    RunRanks(2, [&](int rank) {
      for (int step = 0; step < steps; ++step) {
        const Status status = models[models.size() - 2 + rank]->Step();
        ASSERT_TRUE(status.ok()) << status.ToString();
      }
    });
  }
  Usage usage;
  usage.allocations = double(allocations - allocations_before) / kSteps;
  usage.buckets = double(buckets - buckets_before) / kSteps;
  return usage;
}

TEST(Allocations, AreOfBucketsAndMessagesAndNotOfTensors) {
  for (int tensors : {20, 520}) {
    const Usage usage = UsageOf(tensors);
    // A vector that grows to hold a bucket's tensors takes memory ten times.
    EXPECT_LT(usage.allocations, 200 * usage.buckets)
        << tensors << " tensors in " << usage.buckets << " buckets";
    EXPECT_GE(usage.buckets, 1);
  }
}

// Looks at this rank's row and column alone, as a backend does.
class RowAndColumn final : public BlockingCollective {
 public:
  explicit RowAndColumn(int rank) : rank_(rank) {}
  Status Allreduce(const AllreduceArgs&) override { return OkStatus(); }
  Status Allgather(const AllgatherArgs&) override { return OkStatus(); }
  Status Broadcast(const BroadcastArgs&) override { return OkStatus(); }
  Status Reducescatter(const ReducescatterArgs&) override { return OkStatus(); }
  Status Alltoall(const AlltoallArgs& args) override {
    for (int peer = 0; peer < args.size; ++peer) {
      bytes_ += args.bytes(rank_, peer) + args.bytes(peer, rank_);
    }
    return OkStatus();
  }
  void PeerGone(int) override {}
  void Abort(const Status&) override {}
  size_t bytes() const { return bytes_; }

 private:
  const int rank_;
  size_t bytes_ = 0;
};

// Of many ranks, with equal splits: from what all have asked for to its end on
// one of them.
TEST(Allocations, OfAnAlltoallAreOfRanksAndNotOfPairsOfRanks) {
  constexpr int kRanks = 4096;
  constexpr int kRank = 17;
  Request request = AllreduceRequest("x", 2 * kRanks);
  request.kind = RequestKind::kAlltoall;
  std::vector<int32_t> ranks(kRanks);
  std::iota(ranks.begin(), ranks.end(), 0);
  Counters counters;
  RowAndColumn collective(kRank);
  Executor executor(kRank, kRanks, collective, counters,
                    Executor::Callbacks{[] {}, [](const Status&) {}});
  ASSERT_TRUE(executor.Start().ok());
  std::vector<float> input(2 * kRanks), output(2 * kRanks);
  std::vector<int64_t> received(kRanks);
  Status ended = InternalError("has not ended");
  const uint64_t before = allocated_bytes;

  std::vector<RequestVariant> variants;
  AddVariant(variants, VariantOf(request, std::move(ranks)));
  ExecuteDecision decision;
  decision.uncached.push_back(
      std::make_shared<const Response>(Agree(variants, kRanks).value()));
  const std::string bytes =
      EncodeMessage(DecisionMessage{{Decision(std::move(decision))}});
  const Message message = DecodeMessage(bytes, kRanks).value();
  Bucket bucket;
  bucket.command.items =
      std::get<ExecuteDecision>(
          std::get<DecisionMessage>(message).decisions.front())
          .uncached;
  TensorEntry entry;
  entry.request = std::make_shared<const Request>(request);
  entry.inputs = {input.data()};
  entry.allocate = [&](int result, int64_t rows) -> Result<void*> {
    EXPECT_EQ(rows, result == 0 ? 2 * kRanks : kRanks);
    return result == 0 ? static_cast<void*>(output.data()) : received.data();
  };
  entry.completion = Completion([&](const Status& status) { ended = status; });
  bucket.entries.push_back(std::move(entry));
  executor.RunOrPush(std::move(bucket), [] {});
  executor.Stop();

  EXPECT_TRUE(ended.ok()) << ended.ToString();
  EXPECT_EQ(collective.bytes(), 4 * kRanks * sizeof(float));
  EXPECT_EQ(received, std::vector<int64_t>(kRanks, 2));
  // A matrix of all pairs has 128 MiB.
  EXPECT_LT(allocated_bytes - before, uint64_t{4} << 20);
  RecordProperty("bytes", std::to_string(allocated_bytes - before));
}

}  // namespace
}  // namespace keras_ring
