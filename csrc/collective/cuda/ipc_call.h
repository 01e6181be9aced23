// IpcCall: one call of a CudaIpcCollective, as work for a lane.
#ifndef KERAS_RING_COLLECTIVE_CUDA_IPC_CALL_H_
#define KERAS_RING_COLLECTIVE_CUDA_IPC_CALL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/cuda/call_memory.h"
#include "csrc/collective/cuda/ipc_lane.h"
#include "csrc/collective/cuda/kernel_rows.h"
#include "csrc/collective/cuda/peer_memory.h"
#include "csrc/collective/cuda/peer_page.h"
#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/cuda/kernels/kernel_set.h"

namespace keras_ring {

// See CudaIpcOptions.
struct IpcSizes {
  int64_t direct_bytes = 0;
  int64_t one_shot_bytes = 0;
};

// What a call uses.
struct IpcParts {
  const cuda::Driver& driver;
  const std::vector<PeerPage*>& pages;  // by local rank
  int local_rank;
  uint64_t number;  // of the call
  IpcSizes sizes;
  IpcLane& lane;
  PeerMemory& peers;
  cuda::KernelSet& kernels;
  CallMemory& memory;
  // Publishes that this rank has done a phase of the call, and waits for the
  // others.
  std::function<Status(Phase)> meet;
};

class IpcCall {
 public:
  explicit IpcCall(const IpcParts& parts)
      : parts_(parts), lane_(parts.lane), stream_(parts.lane.stream()) {}

  // Gives all work to the lane. The device must be current.
  Status Run(const CollectiveArgs& args);

 private:
  // Memory that this rank shows to the others.
  struct Array {
    const void* input;
    void* output;  // null: the others write nothing there
    int64_t bytes;
  };

  Status Do(const AllreduceArgs& args);
  Status Do(const ReducescatterArgs& args);
  Status Do(const AllgatherArgs& args);
  Status Do(const AlltoallArgs& args);
  Status Do(const BroadcastArgs& args);
  Status OneShot(const AllreduceArgs& args);

  int size() const { return static_cast<int>(parts_.pages.size()); }
  int local_rank() const { return parts_.local_rank; }
  char* staging() const { return lane_.staging(); }
  // Returns where so many bytes lie in the staging area.
  int64_t Reserve(int64_t bytes);
  // Puts what is in `small` one after the other into the staging area.
  void Pack(const std::vector<TensorSpan>& small, size_t element,
            bool copies_in, bool copies_out);

  // The steps of CudaIpcCollective.
  Status Stage();
  Status Show();
  Status End();

  PeerPage::Array* ArraysOf(int peer) const {
    return parts_.pages[peer]->arrays[parts_.number % 2];
  }
  Result<char*> InputOf(int peer, size_t array);
  Result<char*> OutputOf(int peer, size_t array);
  Status Fold(const Reduction& reduction, const FoldRows& folds,
              int num_outputs);
  Status Copy(const CopyRows& copies);

  const IpcParts& parts_;
  IpcLane& lane_;
  const cuda::Stream stream_;
  std::vector<Array> arrays_;
  int64_t staged_ = 0;  // bytes of the staging area that are reserved
  // Into the staging area, and out of it.
  CopyRows in_;
  CopyRows out_;
  size_t num_copies_ = 0;  // beside those, at most
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_IPC_CALL_H_
