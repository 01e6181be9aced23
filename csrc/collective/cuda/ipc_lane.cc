#include "csrc/collective/cuda/ipc_lane.h"

#include <algorithm>
#include <utility>

#include "csrc/base/round.h"

namespace keras_ring {
namespace {

using cuda::CudaEvent;

constexpr size_t kMinStaging = size_t{2} << 20;
constexpr size_t kPage = 4096;

}  // namespace

IpcLane::IpcLane(std::shared_ptr<cuda::Gpu> gpu, cuda::OwnStream stream,
                 Event written, Event reduced)
    : gpu_(std::move(gpu)),
      stream_(std::move(stream)),
      written_(std::move(written)),
      reduced_(std::move(reduced)) {}

Result<std::unique_ptr<IpcLane>> IpcLane::Create(
    std::shared_ptr<cuda::Gpu> gpu) {
  KR_ASSIGN_OR_RETURN(auto stream, cuda::OwnStream::Create(gpu));
  KR_ASSIGN_OR_RETURN(auto written,
                      CudaEvent::Create(gpu, cuda::kEventInterprocess));
  KR_ASSIGN_OR_RETURN(auto reduced,
                      CudaEvent::Create(gpu, cuda::kEventInterprocess));
  std::unique_ptr<IpcLane> lane(new IpcLane(std::move(gpu), std::move(stream),
                                            std::move(written),
                                            std::move(reduced)));
  KR_RETURN_IF_ERROR(lane->Stage(kMinStaging));
  return lane;
}

IpcLane::~IpcLane() {
  const cuda::Gpu::Current current(*gpu_);
  gpu_->driver().cuStreamSynchronize(stream());
  for (char* area : staging_) gpu_->Free(area);
}

Status IpcLane::Show(PeerPage::Lane& lane) const {
  lane.written.own = written_->get();
  lane.reduced.own = reduced_->get();
  const cuda::Driver& driver = gpu_->driver();
  KR_RETURN_IF_ERROR(KR_CUDA(driver, cuIpcGetEventHandle, &lane.written.handle,
                             written_->get()));
  return KR_CUDA(driver, cuIpcGetEventHandle, &lane.reduced.handle,
                 reduced_->get());
}

Status IpcLane::Open(PeerMemory& peers, int local_rank,
                     const PeerPage::Lane& lane) {
  KR_ASSIGN_OR_RETURN(auto written, peers.OpenEvent(local_rank, lane.written));
  KR_ASSIGN_OR_RETURN(auto reduced, peers.OpenEvent(local_rank, lane.reduced));
  peer_written_.push_back(std::move(written));
  peer_reduced_.push_back(std::move(reduced));
  return OkStatus();
}

Status IpcLane::Stage(size_t bytes) {
  if (bytes <= staging_bytes_) return OkStatus();
  const size_t wanted = std::max(2 * staging_bytes_, RoundUp(bytes, kPage));
  KR_ASSIGN_OR_RETURN(void* const area, gpu_->Allocate(wanted));
  staging_.push_back(static_cast<char*>(area));
  staging_bytes_ = wanted;
  // The gaps between tensors are reduced as well, and nobody reads the result.
  return KR_CUDA(gpu_->driver(), cuMemsetD8Async, cuda::ToDevice(area), 0,
                 wanted, stream());
}

Status IpcLane::Await(const std::vector<Event>& events) {
  for (const Event& event : events) {
    KR_RETURN_IF_ERROR(
        KR_CUDA(gpu_->driver(), cuStreamWaitEvent, stream(), event->get(), 0));
  }
  return OkStatus();
}

Status IpcLane::PayReduced() {
  if (!owes_reduced_) return OkStatus();
  owes_reduced_ = false;
  return AwaitReduced();
}

}  // namespace keras_ring
