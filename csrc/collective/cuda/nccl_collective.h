// NcclCollective: the collectives of tensors on devices by NVIDIA's NCCL.
//
// One stream per rank, and one communicator. Tensors of some size go as they
// are; small ones are put together in a buffer, and reduced as one. The scales
// of a reduction, its divisor and the rounding of a compressed one are applied
// by kernels before and after; compressed values are rounded to the wire dtype,
// and travel in the dtype of the tensors.
//
// The bits of a sum are NCCL's: equal on all ranks, in an order of its own, and
// 16-bit floats may be rounded more than once.
#ifndef KERAS_RING_COLLECTIVE_CUDA_NCCL_COLLECTIVE_H_
#define KERAS_RING_COLLECTIVE_CUDA_NCCL_COLLECTIVE_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/cuda/calls_in_flight.h"
#include "csrc/collective/cuda/kernel_rows.h"
#include "csrc/cuda/cuda_access.h"
#include "csrc/cuda/finalizer.h"
#include "csrc/cuda/kernels/kernel_set.h"
#include "csrc/cuda/nccl.h"

namespace keras_ring {

// Must be equal on all ranks.
struct NcclOptions {
  // Tensors of an allreduce that are smaller are put together.
  int64_t direct_bytes = int64_t{256} << 10;
  // The longest wait for NCCL to connect the ranks.
  Duration connect_limit = std::chrono::seconds(60);
  // See cuda::Finalizer.
  Duration grace = cuda::Finalizer::kGrace;
};

class NcclCollective final : public Collective {
 public:
  // Loads NCCL when the first call comes.
  using Loader = std::function<Result<const cuda::Nccl*>()>;

  // `host`: that of host memory, by which the ranks meet. `fallback`: serves
  // calls that NCCL cannot: an Adasum, averages of integers, dtypes that it has
  // not, compressed float64; and every call if a rank has no NCCL, or two have
  // one device. All
  // references must outlive the object.
  NcclCollective(int rank, int size, cuda::CudaAccess& gpus, Loader load,
                 const NcclOptions& options, Collective& host,
                 std::unique_ptr<Collective> fallback);
  ~NcclCollective() override;

  void Start(const CollectiveArgs& args, Done done) override;
  std::string Explain() const override;
  void PeerGone(int rank) override { fallback_->PeerGone(rank); }
  void Abort(const Status& cause) override KR_EXCLUDES(comm_mutex_);

 private:
  struct Facts;
  struct Connection;

  // Opens the device, and meets the others.
  Status Connect(int ordinal, uint64_t tag);
  Status OpenDevice(int ordinal);
  Status Communicate(uint64_t tag) KR_EXCLUDES(comm_mutex_);
  // Returns why NCCL cannot be used, equal on all ranks; "" if it can.
  static std::string WhyNot(const std::vector<Facts>& all);
  // Whether NCCL can do such a call.
  static bool CanDo(const CollectiveArgs& args);

  Status Run(const CollectiveArgs& args, CallMemory& memory)
      KR_EXCLUDES(comm_mutex_);
  Status Do(const AllreduceArgs& args, CallMemory& memory);
  Status Do(const BroadcastArgs& args, CallMemory& memory);
  Status Do(const AllgatherArgs& args, CallMemory& memory);
  Status Do(const ReducescatterArgs& args, CallMemory& memory);
  Status Do(const AlltoallArgs& args, CallMemory& memory);

  // Calls issue(comm), which returns a code of NCCL, as one group.
  template <typename Issue>
  Status Group(Issue issue) KR_EXCLUDES(comm_mutex_);
  // Waits until NCCL has taken what it was given, at most until `deadline`.
  Status Settle(const char* function, Deadline deadline)
      KR_EXCLUDES(comm_mutex_);
  // NCCL's error, with what usually causes it.
  Status Failed(cuda::NcclCode code, const char* function)
      KR_REQUIRES(comm_mutex_);
  // Returns at least so many bytes for values that are put together.
  Result<char*> Reserve(size_t bytes);

  const int rank_;
  const int size_;
  cuda::CudaAccess& gpus_;
  const Loader load_;
  const NcclOptions options_;
  Collective& host_;
  const std::unique_ptr<Collective> fallback_;
  StickyStatus broken_;
  const cuda::Nccl* nccl_ = nullptr;
  std::unique_ptr<Connection> connection_;
  std::atomic<bool> connected_{false};
  std::string why_not_;  // set before connected_
  std::string version_;  // likewise

  Mutex comm_mutex_;
  CondVar comm_aborts_;
  cuda::NcclComm comm_ KR_GUARDED_BY(comm_mutex_) = nullptr;
  bool comm_aborted_ KR_GUARDED_BY(comm_mutex_) = false;
  // Last: it ends before what it uses.
  CallsInFlight calls_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_CUDA_NCCL_COLLECTIVE_H_
