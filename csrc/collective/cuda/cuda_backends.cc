#include "csrc/collective/cuda/cuda_backends.h"

#include <utility>
#include <vector>

#include "csrc/collective/cuda/cuda_ipc_collective.h"
#include "csrc/collective/cuda/nccl_collective.h"
#include "csrc/collective/cuda/staged_collective.h"
#include "csrc/collective/shm/shm_backend.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/cuda/cuda_access.h"

namespace keras_ring {
namespace {

Status IpcIsAvailable(const BackendDeps& deps) {
  const int size = deps.options.size;
  if (size > cuda::kMaxPeers) {
    return FailedPreconditionError(
        "there are " + std::to_string(size) +
        " ranks, and devices read the memory of at most " +
        std::to_string(cuda::kMaxPeers));
  }
  if (size == 1) return OkStatus();
  if (deps.host != nullptr && deps.host->size() == size) return OkStatus();
  return FailedPreconditionError("the ranks are on several hosts");
}

std::unique_ptr<Collective> MakeStagedOf(const BackendDeps& deps) {
  return std::make_unique<StagedCollective>(
      deps.options.rank, deps.options.size, *deps.gpus, *deps.host_collective);
}

Result<std::unique_ptr<Collective>> MakeStaged(const BackendDeps& deps, Mesh&,
                                               Deadline) {
  return MakeStagedOf(deps);
}

// A rank alone has no group. This one is of memory that it does not share.
Result<std::shared_ptr<const HostGroup>> GroupOf(const BackendDeps& deps) {
  if (deps.host != nullptr) {
    return std::shared_ptr<const HostGroup>(std::shared_ptr<void>(), deps.host);
  }
  HostGroupLayout layout;
  layout.data_bytes = CudaIpcCollective::DataBytes();
  KR_ASSIGN_OR_RETURN(HostGroup::Member own, NewHostGroupMember(0, layout));
  return std::shared_ptr<const HostGroup>(std::make_shared<HostGroup>(
      std::vector<HostGroup::Member>{std::move(own)}, 0, layout, deps.ranks));
}

Result<std::unique_ptr<Collective>> MakeIpc(const BackendDeps& deps, Mesh&,
                                            Deadline) {
  KR_ASSIGN_OR_RETURN(auto group, GroupOf(deps));
  CudaIpcOptions options;
  // Its pages are the last.
  options.page_offset = group->data_bytes() - CudaIpcCollective::DataBytes();
  options.barrier = BarrierOptionsOf(deps);
  return std::unique_ptr<Collective>(std::make_unique<CudaIpcCollective>(
      std::move(group), *deps.gpus, options, Meter(deps.counters, deps.trace),
      MakeStagedOf(deps)));
}

// What serves the calls that NCCL cannot.
Result<std::unique_ptr<Collective>> MakeBesideNccl(const BackendDeps& deps,
                                                   Mesh& mesh,
                                                   Deadline deadline) {
  if (IpcIsAvailable(deps).ok()) return MakeIpc(deps, mesh, deadline);
  return MakeStagedOf(deps);
}

Result<std::unique_ptr<Collective>> MakeNccl(const BackendDeps& deps,
                                             Mesh& mesh, Deadline deadline) {
  KR_ASSIGN_OR_RETURN(auto fallback, MakeBesideNccl(deps, mesh, deadline));
  NcclOptions options;
  options.connect_limit = Seconds(deps.options.start_timeout);
  return std::unique_ptr<Collective>(std::make_unique<NcclCollective>(
      deps.options.rank, deps.options.size, *deps.gpus,
      [library = deps.options.nccl] { return cuda::LoadNccl(library); },
      options, *deps.host_collective, std::move(fallback)));
}

Status IsAvailable(const BackendDeps&) { return OkStatus(); }

}  // namespace

size_t CudaIpcDataBytes(int size) {
  return size <= cuda::kMaxPeers ? CudaIpcCollective::DataBytes() : 0;
}

const CollectiveBackend kNcclBackend = {"nccl", DeviceKind::kCuda,
                                        /*reads_arenas=*/false, IsAvailable,
                                        MakeNccl};
const CollectiveBackend kCudaIpcBackend = {"cuda_ipc", DeviceKind::kCuda,
                                           /*reads_arenas=*/false,
                                           IpcIsAvailable, MakeIpc};
const CollectiveBackend kStagedBackend = {"staged", DeviceKind::kCuda,
                                          /*reads_arenas=*/false, IsAvailable,
                                          MakeStaged};

}  // namespace keras_ring
