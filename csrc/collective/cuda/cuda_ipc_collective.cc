#include "csrc/collective/cuda/cuda_ipc_collective.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <utility>
#include <variant>

#include "csrc/base/logging.h"
#include "csrc/base/rank_set.h"
#include "csrc/collective/cuda/device_calls.h"
#include "csrc/collective/cuda/ipc_lane.h"
#include "csrc/collective/cuda/peer_memory.h"
#include "csrc/cuda/gpu.h"
#include "csrc/cuda/gpu_list.h"
#include "csrc/cuda/kernels/kernel_set.h"

namespace keras_ring {
namespace {

using cuda::Gpu;

std::vector<PeerPage*> PagesOf(const HostGroup& group, size_t offset) {
  std::vector<PeerPage*> pages;
  for (int i = 0; i < group.size(); ++i) {
    pages.push_back(&PeerPageOf(group, i, offset));
  }
  return pages;
}

std::vector<ProgressPage*> ProgressOf(const std::vector<PeerPage*>& pages) {
  std::vector<ProgressPage*> progress;
  for (PeerPage* page : pages) progress.push_back(&page->progress);
  return progress;
}

}  // namespace

// What exists once the device is open.
struct CudaIpcCollective::Connection {
  std::shared_ptr<Gpu> gpu;
  std::unique_ptr<cuda::KernelSet> kernels;
  std::unique_ptr<PeerMemory> peers;
  // Destroyed first: they wait until nothing else is in use.
  std::vector<std::unique_ptr<IpcLane>> lanes;
};

CudaIpcCollective::CudaIpcCollective(std::shared_ptr<const HostGroup> group,
                                     cuda::CudaAccess& gpus,
                                     const CudaIpcOptions& options,
                                     const Meter& meter,
                                     std::unique_ptr<Collective> fallback)
    : group_(std::move(group)),
      gpus_(gpus),
      options_(options),
      fallback_(std::move(fallback)),
      size_(group_->size()),
      local_rank_(group_->local_rank()),
      pages_(PagesOf(*group_, options.page_offset)),
      barrier_(ProgressOf(pages_), group_->global_ranks(), local_rank_,
               options.barrier, meter),
      calls_(options.grace) {
  KR_CHECK(group_->data_bytes() >= options.page_offset + DataBytes());
  KR_CHECK(size_ <= cuda::kMaxPeers);
}

CudaIpcCollective::~CudaIpcCollective() {
  barrier_.Leave();
  if (calls_.Stop() || connection_ == nullptr) return;
  // The device still waits for a process that has gone, and would never be done
  // with what would be freed here.
  KR_LOG(kWarning) << "the streams of " << connection_->gpu->name()
                   << " are not done with what they were given; what they use "
                      "is kept until this process ends";
  static_cast<void>(connection_.release());
}

void CudaIpcCollective::Start(const CollectiveArgs& args, Done done) {
  barrier_.SetTag(CallOf(args).tag);
  Status status = broken_.Run([&]() -> Status {
    const int ordinal = CallOf(args).ordinal;
    if (connection_ == nullptr) return Connect(ordinal);
    return CheckOrdinal(*connection_->gpu, ordinal);
  });
  if (status.ok() && (falls_back_ || IsAdasum(args))) {
    return fallback_->Start(args, std::move(done));
  }
  if (!status.ok()) {
    // The others need not wait for steps that will not come.
    barrier_.Leave();
    return done(status);
  }
  const Gpu::Current current(*connection_->gpu);
  ++call_;
  CallMemory& memory = calls_.Begin();
  status = broken_.Run([&]() -> Status {
    KR_RETURN_IF_ERROR(current.status());
    return Run(args, memory);
  });
  if (!status.ok()) {
    barrier_.Leave();
    // The tensors are given up once the device is done with them, or soon.
    calls_.Abort(status);
  }
  calls_.End(connection_->lanes[call_ % PeerPage::kNumLanes]->stream(),
             std::move(done));
}

Status CudaIpcCollective::Run(const CollectiveArgs& args, CallMemory& memory) {
  Connection& on = *connection_;
  const IpcParts parts{
      on.gpu->driver(), pages_,
      local_rank_,      call_,
      options_.sizes,   *on.lanes[call_ % PeerPage::kNumLanes],
      *on.peers,        *on.kernels,
      memory,           [this](Phase phase) { return Meet(phase); }};
  return IpcCall(parts).Run(args);
}

Status CudaIpcCollective::Meet(Phase phase) {
  barrier_.Publish(phase, call_);
  return barrier_.AwaitAll(phase, call_);
}

Status CudaIpcCollective::Connect(int ordinal) {
  auto connection = std::make_unique<Connection>();
  KR_ASSIGN_OR_RETURN(connection->gpu, gpus_.Open(ordinal));
  const auto& gpu = connection->gpu;
  const Gpu::Current current(*gpu);
  KR_RETURN_IF_ERROR(current.status());
  KR_ASSIGN_OR_RETURN(connection->kernels, cuda::KernelSet::Load(gpu));
  connection->peers = std::make_unique<PeerMemory>(gpu, pages_, local_rank_);
  for (int i = 0; i < PeerPage::kNumLanes; ++i) {
    KR_ASSIGN_OR_RETURN(auto lane, IpcLane::Create(gpu));
    connection->lanes.push_back(std::move(lane));
  }
  connection_ = std::move(connection);
  KR_RETURN_IF_ERROR(calls_.Open(gpu));
  return Exchange();
}

Status CudaIpcCollective::Exchange() {
  Connection& on = *connection_;
  PeerPage& own = *pages_[local_rank_];
  own.pid = getpid();
  own.device = on.gpu->uuid();
  KR_RETURN_IF_ERROR(
      KR_CUDA(on.gpu->driver(), cuDeviceGetCount, &own.num_devices));
  // A rank that cannot share says why, and all do without.
  Status usable;
  for (int i = 0; i < PeerPage::kNumLanes && usable.ok(); ++i) {
    usable = on.lanes[i]->Show(own.lanes[i]);
  }
  KR_ASSIGN_OR_RETURN(own.probe, on.peers->Show(on.lanes[0]->staging()));
  ++call_;
  KR_RETURN_IF_ERROR(Meet(Phase::kPacked));
  for (int peer = 0; peer < size_ && usable.ok(); ++peer) {
    if (peer == local_rank_) continue;
    usable = OpenPeer(peer).WithContext(
        "the memory of rank " + std::to_string(group_->global_rank(peer)));
  }
  own.usable = usable.ok();
  std::snprintf(own.why_not, sizeof(own.why_not), "%s",
                usable.message().c_str());
  KR_RETURN_IF_ERROR(Meet(Phase::kReduced));
  for (const PeerPage* page : pages_) {
    if (!page->usable) falls_back_ = true;
  }
  if (local_rank_ == 0) WarnOfSharedDevices();
  return OkStatus();
}

// Frameworks take the first device that they see, each time.
void CudaIpcCollective::WarnOfSharedDevices() const {
  std::map<std::string, std::vector<int32_t>> users;
  for (int i = 0; i < size_; ++i) {
    users[cuda::UuidText(pages_[i]->device)].push_back(group_->global_rank(i));
  }
  if (static_cast<int>(users.size()) >= pages_[0]->num_devices) return;
  for (const auto& [device, ranks] : users) {
    if (ranks.size() == 1) continue;
    KR_LOG(kWarning) << RanksText(ranks) << " use one GPU, " << device
                     << ", and this host has others: give each rank its own, "
                        "by pin_gpu() or CUDA_VISIBLE_DEVICES";
  }
}

Status CudaIpcCollective::OpenPeer(int peer) {
  Connection& on = *connection_;
  const PeerPage& page = *pages_[peer];
  if (page.probe.region == DevicePlace::kNowhere) {
    return FailedPreconditionError("its driver does not share any");
  }
  KR_RETURN_IF_ERROR(on.peers->Open(peer, page.probe).status());
  for (int i = 0; i < PeerPage::kNumLanes; ++i) {
    KR_RETURN_IF_ERROR(on.lanes[i]->Open(*on.peers, peer, page.lanes[i]));
  }
  return OkStatus();
}

std::string CudaIpcCollective::Explain() const {
  if (!falls_back_) {
    return std::to_string(size_) +
           " ranks of one host, whose devices read each other's memory\n";
  }
  std::string text;
  for (int i = 0; i < size_; ++i) {
    if (pages_[i]->usable) continue;
    text += "rank " + std::to_string(group_->global_rank(i)) +
            " cannot read the memory of other devices: " + pages_[i]->why_not +
            "\n";
  }
  return text + fallback_->Explain();
}

void CudaIpcCollective::PeerGone(int rank) {
  const int local_rank = group_->LocalRankOf(rank);
  if (local_rank >= 0) barrier_.SetGone(local_rank);
  fallback_->PeerGone(rank);
}

void CudaIpcCollective::Abort(const Status& cause) {
  const bool is_first = broken_.Set(cause);
  // Before the device reaches the ends of calls that have no results.
  calls_.Abort(broken_.Get());
  if (is_first) barrier_.Abort(cause);
  fallback_->Abort(cause);
}

}  // namespace keras_ring
