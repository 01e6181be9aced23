// CudaIpcCollective: the collectives among ranks of one host whose tensors are
// in the memory of devices, where each reads that of the others.
//
// A call is work for one stream of each rank, in these steps:
//
//   1. the stream waits for the tensors to be ready, and copies those that
//      others cannot read where they are, or that are small, to a staging area;
//   2. `written` is recorded, and the rank shows where its arrays are;
//   3. once all ranks have said so, the stream waits for `written` of the
//      others. Each rank reduces its part of every array, from the memory of
//      all ranks, and writes it to the memory of all ranks; in the calls that
//      reduce nothing it copies what is for itself;
//   4. `reduced` is recorded;
//   5. once all ranks have said so, the stream waits for `reduced` of the
//      others, and copies results out of the staging area.
//
// An allreduce of few bytes is done in one shot: in step 3 each rank reduces
// all, for itself, and step 5 is left to the next call that uses the lane.
//
// The host waits only for the threads of other ranks, never for a device: a
// stream waits for a stream. So several calls are in flight, and a finalizer
// says when each is done. Part r of an array is read and written by rank r
// alone, so that an array can be reduced in place, and all ranks get the same
// bits.
//
// Calls take turns with a few lanes, each a stream with events and a staging
// area, so that one call computes while another one waits. An event is recorded
// again in the next call of its lane. By then the others have given their
// streams the wait for this one: step 3 of a call begins when all have done
// step 2 of it, which comes after all waits of the call before.
#ifndef KERAS_RING_COLLECTIVE_CUDA_CUDA_IPC_COLLECTIVE_H_
#define KERAS_RING_COLLECTIVE_CUDA_CUDA_IPC_COLLECTIVE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/cuda/calls_in_flight.h"
#include "csrc/collective/cuda/ipc_call.h"
#include "csrc/collective/cuda/peer_page.h"
#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/cuda/cuda_access.h"
#include "csrc/cuda/finalizer.h"

namespace keras_ring {

// Must be equal on all ranks, except `barrier`.
struct CudaIpcOptions {
  // Where the pages are in the data of the group.
  size_t page_offset = 0;
  IpcSizes sizes = {
      // Tensors of an allreduce that are smaller are copied to the staging
      // area, one after the other, and reduced as one array.
      /*direct_bytes=*/int64_t{128} << 10,
      // An allreduce of no larger tensors, and of no more bytes, is done in one
      // shot.
      /*one_shot_bytes=*/int64_t{256} << 10,
  };
  ChunkBarrierOptions barrier;
  // See cuda::Finalizer.
  Duration grace = cuda::Finalizer::kGrace;
};

class CudaIpcCollective final : public Collective {
 public:
  // The part of HostGroupLayout::data_bytes that it needs.
  static size_t DataBytes() { return sizeof(PeerPage); }

  // The device is opened by the first call, which names it. `fallback`: serves
  // calls that this object cannot: an Adasum, and every call if a device cannot
  // read the memory of another one. `gpus` must outlive the object.
  CudaIpcCollective(std::shared_ptr<const HostGroup> group,
                    cuda::CudaAccess& gpus, const CudaIpcOptions& options,
                    const Meter& meter, std::unique_ptr<Collective> fallback);
  ~CudaIpcCollective() override;

  void Start(const CollectiveArgs& args, Done done) override;
  std::string Explain() const override;
  void PeerGone(int rank) override;
  void Abort(const Status& cause) override;

 private:
  struct Connection;

  // Opens the device, and meets the others.
  Status Connect(int ordinal);
  Status Exchange();
  Status OpenPeer(int peer);
  void WarnOfSharedDevices() const;
  Status Run(const CollectiveArgs& args, CallMemory& memory);
  // Publishes that this rank has done `phase` of the call, and waits for the
  // others.
  Status Meet(Phase phase);

  const std::shared_ptr<const HostGroup> group_;
  cuda::CudaAccess& gpus_;
  const CudaIpcOptions options_;
  const std::unique_ptr<Collective> fallback_;
  const int size_;
  const int local_rank_;
  const std::vector<PeerPage*> pages_;  // by local rank
  ChunkBarrier barrier_;
  uint64_t call_ = 0;  // number of the current one
  StickyStatus broken_;
  std::unique_ptr<Connection> connection_;
  std::atomic<bool> falls_back_{false};

  // Last: it ends before what it uses.
  CallsInFlight calls_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_CUDA_IPC_COLLECTIVE_H_
