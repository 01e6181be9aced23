// Times an allreduce among ranks that share one device, against the device's
// own copy: benchmarks/gpu_collectives [--threads] [--largest=BYTES].
//
// Ranks are processes, or with --threads threads of one process. An allreduce
// of B bytes among n ranks reads and writes n B bytes of one memory, so that no
// method takes less than 2 n B / W, where W is what a copy reads and writes in
// a second. The table says which share of W is reached.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/must.h"
#include "csrc/base/round.h"
#include "csrc/collective/cuda/cuda_ipc_collective.h"
#include "csrc/collective/cuda/staged_collective.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/cuda/gpu.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

size_t HostBytes(int size) {
  return RoundUp(ShmCollective::DataBytes(size, ShmCollectiveOptions()),
                 size_t{4096});
}

// One rank, its collectives, and a tensor.
class Rank {
 public:
  Rank(const HostGroup& group, size_t largest)
      : group_(group),
        gpu_(Must(cuda::Gpu::Open(cuda::TestedDriver(), 0))),
        host_(group, ShmCollectiveOptions(), counters_),
        staged_(group.local_rank(), group.size(), gpus_, host_),
        ipc_({std::shared_ptr<void>(), &group}, gpus_, Options(group.size()),
             Meter(counters_, nullptr),
             std::make_unique<StagedCollective>(group.local_rank(),
                                                group.size(), gpus_, host_)),
        largest_(largest),
        tensor_(static_cast<float*>(Must(gpu_->Allocate(largest)))) {}

  // Median seconds of one call, from its start to its end, and seconds of one
  // call among many that are in flight.
  struct Times {
    double alone;
    double among_many;
  };
  Times Time(size_t bytes, bool staged) {
    Collective& collective = staged ? static_cast<Collective&>(staged_) : ipc_;
    const int repeats = bytes > (size_t{64} << 20) || staged ? 7 : 21;
    std::vector<double> alone;
    Run(collective, bytes, 2);
    for (int i = 0; i < repeats; ++i) {
      const double began = Now();
      Run(collective, bytes, 1);
      alone.push_back(Now() - began);
    }
    std::vector<double> many;
    const int at_once = staged ? 1 : 8;
    for (int i = 0; i < 5; ++i) {
      const double began = Now();
      Run(collective, bytes, at_once);
      many.push_back((Now() - began) / at_once);
    }
    return {Median(alone), Median(many)};
  }

  // Whether a sum of what the ranks have is right.
  bool Check(size_t bytes) {
    const size_t count = bytes / sizeof(float);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>((i + group_.local_rank()) % 1024);
    }
    Must(gpu_->Write(tensor_, values.data(), bytes));
    Run(ipc_, bytes, 1);
    Must(gpu_->Read(values.data(), tensor_, bytes));
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int rank = 0; rank < group_.size(); ++rank) {
        sum += static_cast<float>((i + rank) % 1024);
      }
      if (values[i] != sum) return false;
    }
    // Zeros for the timed calls, whose sums would overflow.
    values.assign(count, 0.0F);
    Must(gpu_->Write(tensor_, values.data(), bytes));
    return true;
  }

  std::string Explain() const { return ipc_.Explain(); }

 private:
  static CudaIpcOptions Options(int size) {
    CudaIpcOptions options;
    options.page_offset = HostBytes(size);
    options.barrier.spin = std::chrono::milliseconds(2);
    return options;
  }

  // Calls in flight have tensors of their own, as far as there is room: so they
  // do not find them in the caches.
  float* TensorOf(int call, size_t bytes) const {
    const size_t room = std::max<size_t>(1, largest_ / RoundUp(bytes, 256));
    return tensor_ + (call % room) * RoundUp(bytes, 256) / sizeof(float);
  }

  void Run(Collective& collective, size_t bytes, int calls) {
    std::vector<std::promise<Status>> outcomes(calls);
    for (int i = 0; i < calls; ++i) {
      AllreduceArgs args;
      args.tag = ++tag_;
      float* const tensor = TensorOf(i, bytes);
      args.tensors.push_back(
          {tensor, tensor, static_cast<int64_t>(bytes / sizeof(float))});
      calls_.push_back(std::make_unique<CollectiveArgs>(args));
      collective.Start(*calls_.back(), [&outcomes, i](const Status& status) {
        outcomes[i].set_value(status);
      });
    }
    for (auto& outcome : outcomes) Must(outcome.get_future().get());
    calls_.clear();
  }

  const HostGroup& group_;
  Counters counters_;
  cuda::CudaAccess gpus_{cuda::TestedDriver()};
  std::shared_ptr<cuda::Gpu> gpu_;
  ShmCollective host_;
  StagedCollective staged_;
  CudaIpcCollective ipc_;
  const size_t largest_;
  float* const tensor_;
  uint64_t tag_ = 0;
  std::vector<std::unique_ptr<CollectiveArgs>> calls_;
};

// Bytes that a copy on the device reads and writes in a second.
double CopyBandwidth(size_t bytes) {
  const cuda::Driver& driver = cuda::TestedDriver();
  auto gpu = Must(cuda::Gpu::Open(driver, 0));
  const cuda::Gpu::Current current(*gpu);
  auto stream = Must(cuda::OwnStream::Create(gpu));
  void* const from = Must(gpu->Allocate(bytes));
  void* const to = Must(gpu->Allocate(bytes));
  std::vector<double> times;
  constexpr int kCopies = 10;
  for (int i = 0; i < 5; ++i) {
    Must(KR_CUDA(driver, cuStreamSynchronize, stream.get()));
    const double began = Now();
    for (int copy = 0; copy < kCopies; ++copy) {
      Must(KR_CUDA(driver, cuMemcpyDtoDAsync, cuda::ToDevice(to),
                   cuda::ToDevice(from), bytes, stream.get()));
    }
    Must(KR_CUDA(driver, cuStreamSynchronize, stream.get()));
    times.push_back((Now() - began) / kCopies);
  }
  gpu->Free(from);
  gpu->Free(to);
  return 2.0 * static_cast<double>(bytes) / Median(times);
}

std::vector<size_t> Sizes(size_t largest) {
  std::vector<size_t> sizes = {4};
  for (size_t bytes = size_t{4} << 10; bytes <= largest; bytes *= 4) {
    sizes.push_back(bytes);
  }
  if (sizes.back() != largest) sizes.push_back(largest);
  return sizes;
}

void RunRank(const HostGroup& group, size_t largest, double bandwidth) {
  Rank rank(group, largest);
  const bool prints = group.local_rank() == 0;
  const bool right = rank.Check(std::min(largest, size_t{1} << 20)) &&
                     rank.Check(std::min(largest, size_t{4} << 20) - 12);
  if (!right) {
    std::printf("WRONG on rank %d of %d\n", group.local_rank(), group.size());
    std::fflush(stdout);
    _exit(1);
  }
  if (prints) std::printf("%s", rank.Explain().c_str());
  for (size_t bytes : Sizes(largest)) {
    const Rank::Times times = rank.Time(bytes, /*staged=*/false);
    if (!prints) continue;
    const double moved = 2.0 * group.size() * static_cast<double>(bytes);
    std::printf("%5d %12zu %12.1f %12.1f %8.1f %6.0f%%\n", group.size(), bytes,
                times.alone * 1e6, times.among_many * 1e6,
                moved / times.among_many / 1e9,
                100 * moved / times.among_many / bandwidth);
    std::fflush(stdout);
  }
  const size_t staged = std::min(largest, size_t{64} << 20);
  const Rank::Times times = rank.Time(staged, /*staged=*/true);
  if (prints) {
    std::printf("%5d %12zu %12.1f   (through host memory)\n", group.size(),
                staged, times.alone * 1e6);
    std::fflush(stdout);
  }
}

int Main(int argc, char** argv) {
  bool threads = false;
  size_t largest = size_t{1} << 30;
  std::vector<int> sizes = {2, 4, 8};
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--threads") threads = true;
    if (arg.rfind("--largest=", 0) == 0) largest = std::stoull(arg.substr(10));
    if (arg.rfind("--ranks=", 0) == 0) sizes = {std::stoi(arg.substr(8))};
  }
  // In a process of its own, as no process that uses the driver may fork.
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return 1;
  double bandwidth = 0;
  const pid_t meter = fork();
  if (meter == 0) {
    bandwidth = CopyBandwidth(std::min(largest, size_t{512} << 20));
    _exit(write(pipe_ends[1], &bandwidth, sizeof(bandwidth)) ==
                  sizeof(bandwidth)
              ? 0
              : 1);
  }
  waitpid(meter, nullptr, 0);
  if (read(pipe_ends[0], &bandwidth, sizeof(bandwidth)) != sizeof(bandwidth)) {
    return 1;
  }
  std::printf("a copy on the device: %.0f GB/s, read and written\n",
              bandwidth / 1e9);
  std::printf(
      "%s\nranks        bytes     us alone     us of 8     GB/s   of copy\n",
      threads ? "ranks are threads" : "ranks are processes");
  std::fflush(stdout);
  int failed = 0;
  for (int size : sizes) {
    HostGroupLayout layout;
    layout.data_bytes = HostBytes(size) + CudaIpcCollective::DataBytes();
    const auto groups = CreateLocalHostGroups(size, layout);
    KeepInChildren(groups, layout);
    if (threads) {
      // Also in a process of its own.
      const pid_t all = fork();
      if (all == 0) {
        std::vector<std::thread> ranks;
        for (const auto& group : groups) {
          ranks.emplace_back([&group, largest, bandwidth] {
            RunRank(*group, largest, bandwidth);
          });
        }
        for (auto& rank : ranks) rank.join();
        _exit(0);
      }
      int status = 0;
      waitpid(all, &status, 0);
      failed |= status;
      continue;
    }
    std::vector<pid_t> children;
    for (const auto& group : groups) {
      const pid_t child = fork();
      if (child == 0) {
        RunRank(*group, largest, bandwidth);
        _exit(0);
      }
      children.push_back(child);
    }
    for (pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      failed |= status;
    }
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace keras_ring

int main(int argc, char** argv) { return keras_ring::Main(argc, argv); }
