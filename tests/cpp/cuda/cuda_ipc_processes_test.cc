// CudaIpcCollective among processes, as ranks are: memory and events are opened
// by handles, and a rank can be killed. On a fake device, or on a real one if
// KERAS_RING_TEST_DRIVER is "real".
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/round.h"
#include "csrc/collective/cuda/cuda_ipc_collective.h"
#include "csrc/collective/cuda/staged_collective.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/cuda/finalizer.h"
#include "csrc/cuda/gpu.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

using cuda::CudaEvent;
using cuda::Gpu;
using cuda::TestedDriver;
using Clock = std::chrono::steady_clock;

// Ends the process of a rank unless the condition holds.
#define KR_EXPECT(condition)                                          \
  do {                                                                \
    if (!(condition)) {                                               \
      std::fprintf(stderr, "rank %d: not so: %s (line %d)\n", rank(), \
                   #condition, __LINE__);                             \
      _exit(1);                                                       \
    }                                                                 \
  } while (false)

size_t HostBytes(int size) {
  return RoundUp(ShmCollective::DataBytes(size, ShmCollectiveOptions()),
                 size_t{4096});
}

HostGroupLayout LayoutOf(int size) {
  HostGroupLayout layout;
  layout.data_bytes = HostBytes(size) + CudaIpcCollective::DataBytes();
  return layout;
}

// A rank, in a process of its own.
class Rank {
 public:
  Rank(const HostGroup& group, Duration grace)
      : group_(group),
        gpu_(*Gpu::Open(TestedDriver(), 0)),
        host_(group, ShmCollectiveOptions(), counters_),
        staged_(group.local_rank(), group.size(), gpus_, host_),
        ipc_({std::shared_ptr<void>(), &group}, gpus_,
             OptionsOf(group.size(), grace), Meter(counters_, nullptr),
             std::make_unique<StagedCollective>(group.local_rank(),
                                                group.size(), gpus_, host_)) {}

  int rank() const { return group_.local_rank(); }
  int size() const { return group_.size(); }
  const std::shared_ptr<Gpu>& gpu() const { return gpu_; }
  CudaIpcCollective& collective() { return ipc_; }

  // A tensor in the memory of the device.
  float* Tensor(const std::vector<float>& values) {
    auto memory = gpu_->Allocate(values.size() * sizeof(float));
    KR_EXPECT(memory.ok());
    auto* const tensor = static_cast<float*>(*memory);
    KR_EXPECT(
        gpu_->Write(tensor, values.data(), values.size() * sizeof(float)).ok());
    return tensor;
  }
  std::vector<float> ValuesOf(const float* tensor, size_t count) {
    std::vector<float> values(count);
    KR_EXPECT(gpu_->Read(values.data(), tensor, count * sizeof(float)).ok());
    return values;
  }

  // Sums a tensor in place, once `ready` is reached.
  std::future<Status> Sum(float* tensor, size_t count, Events ready = {}) {
    AllreduceArgs args;
    args.tag = ++tag_;
    args.ready = std::move(ready);
    args.tensors.push_back({tensor, tensor, static_cast<int64_t>(count)});
    // Kept to the end of the process, as a call may not end before.
    auto* const kept = new CollectiveArgs(args);
    auto outcome = std::make_shared<std::promise<Status>>();
    ipc_.Start(*kept,
               [outcome](const Status& status) { outcome->set_value(status); });
    return outcome->get_future();
  }

 private:
  static CudaIpcOptions OptionsOf(int size, Duration grace) {
    CudaIpcOptions options;
    options.page_offset = HostBytes(size);
    options.grace = grace;
    return options;
  }

  const HostGroup& group_;
  Counters counters_;
  cuda::CudaAccess gpus_{cuda::TestedDriver()};
  std::shared_ptr<Gpu> gpu_;
  ShmCollective host_;
  StagedCollective staged_;
  CudaIpcCollective ipc_;
  uint64_t tag_ = 0;
};

// Runs `body` in a process for each rank, and calls `meanwhile` with these.
// Returns what the processes ended with.
std::vector<int> RunProcesses(
    int size, const std::function<void(Rank&)>& body,
    const std::function<void(const std::vector<pid_t>&)>& meanwhile,
    Duration grace = cuda::Finalizer::kGrace) {
  const HostGroupLayout layout = LayoutOf(size);
  const auto groups = CreateLocalHostGroups(size, layout);
  KeepInChildren(groups, layout);
  std::vector<pid_t> children;
  for (const auto& group : groups) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      {
        Rank rank(*group, grace);
        body(rank);
      }
      _exit(0);
    }
    children.push_back(child);
  }
  meanwhile(children);
  std::vector<int> statuses;
  for (pid_t child : children) {
    statuses.push_back(0);
    waitpid(child, &statuses.back(), 0);
  }
  return statuses;
}

class CudaIpcProcesses : public testing::TestWithParam<int> {};

TEST_P(CudaIpcProcesses, SumsOfManySizes) {
  const auto statuses = RunProcesses(
      GetParam(),
      [](Rank& own) {
        const auto rank = [&own] { return own.rank(); };
        // Below and above what is done in one shot and what is read in place.
        for (size_t count : {1, 3, 1000, 40000, 70000, 300001}) {
          std::vector<float> values(count);
          std::vector<float> sums(count);
          for (size_t i = 0; i < count; ++i) {
            values[i] = static_cast<float>((i + own.rank()) % 977);
            for (int r = 0; r < own.size(); ++r) {
              sums[i] += static_cast<float>((i + r) % 977);
            }
          }
          // Several in flight.
          std::vector<float*> tensors;
          std::vector<std::future<Status>> outcomes;
          for (int i = 0; i < 6; ++i) {
            tensors.push_back(own.Tensor(values));
            outcomes.push_back(own.Sum(tensors.back(), count));
          }
          for (auto& outcome : outcomes) KR_EXPECT(outcome.get().ok());
          for (const float* tensor : tensors) {
            KR_EXPECT(own.ValuesOf(tensor, count) == sums);
          }
        }
      },
      [](const std::vector<pid_t>&) {});
  EXPECT_EQ(statuses, std::vector<int>(GetParam(), 0));
}

// The last rank is killed while its device has work to do that the others wait
// for: they get an error when it has been found, and nothing of theirs changes.
TEST_P(CudaIpcProcesses, AKilledRankIsAnErrorForTheOthers) {
  const int size = GetParam();
  int in_flight[2];
  int gone[2];
  ASSERT_EQ(pipe(in_flight), 0);
  ASSERT_EQ(pipe(gone), 0);
  constexpr size_t kCount = 100000;
  const auto statuses = RunProcesses(
      size,
      [&](Rank& own) {
        const auto rank = [&own] { return own.rank(); };
        const std::vector<float> ones(kCount, 1.0F);
        float* const tensor = own.Tensor(ones);
        float* const untouched = own.Tensor(ones);
        KR_EXPECT(own.Sum(tensor, kCount).get().ok());
        Events ready;
        const Gpu::Current current(*own.gpu());
        auto busy = cuda::OwnStream::Create(own.gpu());
        KR_EXPECT(busy.ok());
        if (own.rank() == own.size() - 1) {
          const size_t bytes =
              cuda::TestsRealDriver() ? size_t{1} << 30 : size_t{4} << 20;
          auto memory = own.gpu()->Allocate(bytes);
          KR_EXPECT(memory.ok());
          const int repeats = cuda::TestsRealDriver() ? 900 : 100000;
          for (int i = 0; i < repeats; ++i) {
            KR_EXPECT(TestedDriver().cuMemsetD8Async(cuda::ToDevice(*memory), 1,
                                                     bytes, busy->get()) ==
                      cuda::kSuccess);
          }
          auto event = CudaEvent::Create(own.gpu());
          KR_EXPECT(event.ok());
          KR_EXPECT((*event)->Record(busy->get()).ok());
          ready.push_back(*event);
        }
        auto outcome = own.Sum(tensor, kCount, ready);
        char byte = 'x';
        KR_EXPECT(write(in_flight[1], &byte, 1) == 1);
        if (own.rank() == own.size() - 1) {
          for (;;) pause();
        }
        // As the watch for dead ranks does.
        KR_EXPECT(read(gone[0], &byte, 1) == 1);
        KR_EXPECT(outcome.wait_for(std::chrono::seconds(0)) ==
                  std::future_status::timeout);
        const auto began = Clock::now();
        own.collective().PeerGone(own.size() - 1);
        own.collective().Abort(UnavailableError("rank is gone"));
        const Status status = outcome.get();
        const Duration took = Clock::now() - began;
        KR_EXPECT(status.code() == StatusCode::kUnavailable);
        KR_EXPECT(took < std::chrono::seconds(5));
        KR_EXPECT(own.Sum(tensor, kCount).get().code() ==
                  StatusCode::kUnavailable);
        KR_EXPECT(own.ValuesOf(untouched, kCount) == ones);
      },
      [&](const std::vector<pid_t>& children) {
        char byte = 'x';
        for (int i = 0; i < size; ++i) {
          ASSERT_EQ(read(in_flight[0], &byte, 1), 1);
        }
        kill(children.back(), SIGKILL);
        for (int i = 0; i + 1 < size; ++i) {
          ASSERT_EQ(write(gone[1], &byte, 1), 1);
        }
      });
  for (int rank = 0; rank + 1 < size; ++rank) EXPECT_EQ(statuses[rank], 0);
  EXPECT_EQ(WTERMSIG(statuses.back()), SIGKILL);
}

// The device of the last rank is slow: those of the others have done their part
// of a call, and begin the next of its lane, long before it reads what they
// have staged for the call before.
TEST_P(CudaIpcProcesses, AStagingAreaIsUsedAgainOnceAllHaveReadIt) {
  constexpr int kCalls = 16;
  const int size = GetParam();
  const auto statuses = RunProcesses(
      size,
      [](Rank& own) {
        const auto rank = [&own] { return own.rank(); };
        if (own.rank() + 1 == own.size()) cuda::fake::SetDelays(1, 10000);
        std::vector<float*> tensors;
        for (int call = 0; call < kCalls; ++call) {
          tensors.push_back(own.Tensor(std::vector<float>(100, call)));
        }
        std::vector<std::future<Status>> sums;
        for (float* tensor : tensors) sums.push_back(own.Sum(tensor, 100));
        for (int call = 0; call < kCalls; ++call) {
          KR_EXPECT(sums[call].get().ok());
          KR_EXPECT(own.ValuesOf(tensors[call], 100) ==
                    std::vector<float>(100, own.size() * call));
        }
      },
      [](const std::vector<pid_t>&) {});
  for (int status : statuses) EXPECT_EQ(status, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaIpcProcesses, testing::Values(2, 4));

}  // namespace
}  // namespace keras_ring
