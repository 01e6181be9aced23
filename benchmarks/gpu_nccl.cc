// Times an allreduce of one rank by our NCCL collective, against a bare
// ncclAllReduce of the same tensor: what ours adds to NCCL's time.
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/must.h"
#include "csrc/collective/cuda/nccl_collective.h"
#include "csrc/collective/cuda/staged_collective.h"
#include "csrc/collective/shm/shm_collective.h"
#include "csrc/cuda/gpu.h"
#include "csrc/testing/fake_cuda.h"
#include "csrc/testing/fake_nccl.h"
#include "csrc/testing/local_host_group.h"

namespace keras_ring {
namespace {

// Median microseconds.
template <typename Function>
double Time(Function run) {
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    const double began = Now();
    run();
    if (i >= 4) times.push_back(1e6 * (Now() - began));
  }
  return Median(std::move(times));
}

// The bare one, in a communicator of its own.
class Bare {
 public:
  Bare(const cuda::Nccl& nccl, std::shared_ptr<cuda::Gpu> gpu)
      : nccl_(nccl), gpu_(gpu), stream_(Must(cuda::OwnStream::Create(gpu))) {
    cuda::NcclUniqueId id = {};
    Check(nccl_.ncclGetUniqueId(&id));
    cuda::NcclConfig config;
    Check(nccl_.ncclCommInitRankConfig(&comm_, 1, id, 0, &config));
    Settle();
  }
  ~Bare() { nccl_.ncclCommAbort(comm_); }

  void Run(float* tensor, size_t count) {
    Check(nccl_.ncclAllReduce(tensor, tensor, count, cuda::kNcclFloat32,
                              cuda::kNcclSum, comm_, stream_.get()));
    Settle();
    Must(KR_CUDA(gpu_->driver(), cuStreamSynchronize, stream_.get()));
  }

 private:
  void Check(cuda::NcclCode code) {
    if (code != cuda::kNcclInProgress) {
      Must(StatusOf(nccl_, code, nullptr, "nccl"));
    }
  }
  void Settle() {
    cuda::NcclCode code = cuda::kNcclInProgress;
    while (code == cuda::kNcclInProgress) {
      Check(nccl_.ncclCommGetAsyncError(comm_, &code));
    }
    Check(code);
  }

  const cuda::Nccl& nccl_;
  std::shared_ptr<cuda::Gpu> gpu_;
  cuda::OwnStream stream_;
  cuda::NcclComm comm_ = nullptr;
};

void Main() {
  const bool real = cuda::TestsRealDriver();
  const char* const named = std::getenv("KERAS_RING_NCCL");
  const std::string library = named != nullptr ? named : cuda::kNcclLibrary;
  const cuda::Nccl& nccl =
      real ? *Must(cuda::LoadNccl(library)) : cuda::FakeNccl();
  int version = 0;
  nccl.ncclGetVersion(&version);
  cuda::CudaAccess gpus(cuda::TestedDriver());
  const auto gpu = Must(gpus.Open(0));
  const cuda::Gpu::Current current(*gpu);
  HostGroupLayout layout;
  layout.data_bytes = ShmCollective::DataBytes(1, ShmCollectiveOptions());
  const auto groups = CreateLocalHostGroups(1, layout);
  Counters counters;
  ShmCollective host(*groups[0], ShmCollectiveOptions(), counters);
  NcclCollective ours(
      0, 1, gpus, [&nccl]() -> Result<const cuda::Nccl*> { return &nccl; },
      NcclOptions(), host,
      std::make_unique<StagedCollective>(0, 1, gpus, host));
  Bare bare(nccl, gpu);
  const size_t largest = real ? size_t{256} << 20 : size_t{1} << 20;
  float* const tensor = static_cast<float*>(Must(gpu->Allocate(largest)));
  std::printf("NCCL %s, one rank\n       bytes   bare us   ours us   more us\n",
              cuda::NcclVersionText(version).c_str());
  uint64_t tag = 0;
  for (size_t bytes = 4; bytes <= largest; bytes *= 16) {
    const size_t count = bytes / sizeof(float);
    const auto run = [&] {
      AllreduceArgs args;
      args.tag = ++tag;
      args.tensors.push_back({tensor, tensor, static_cast<int64_t>(count)});
      const CollectiveArgs call = args;
      std::promise<Status> outcome;
      ours.Start(call, [&outcome](const Status& status) {
        outcome.set_value(status);
      });
      Must(outcome.get_future().get());
    };
    const double of_bare = Time([&] { bare.Run(tensor, count); });
    const double of_ours = Time(run);
    std::printf("%12zu %9.1f %9.1f %9.1f\n", bytes, of_bare, of_ours,
                of_ours - of_bare);
  }
  std::printf("%s", ours.Explain().c_str());
  gpu->Free(tensor);
}

}  // namespace
}  // namespace keras_ring

int main() {
  keras_ring::Main();
  return 0;
}
