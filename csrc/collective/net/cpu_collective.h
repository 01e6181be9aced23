// CpuCollective: the collectives on CPU tensors, over any Transport.
#ifndef KERAS_RING_COLLECTIVE_NET_CPU_COLLECTIVE_H_
#define KERAS_RING_COLLECTIVE_NET_CPU_COLLECTIVE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/collective/adasum.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/fold_method.h"
#include "csrc/collective/kernels/pack.h"
#include "csrc/collective/net/algorithms.h"
#include "csrc/collective/net/exchange.h"
#include "csrc/collective/net/ring.h"
#include "csrc/collective/net/rounds.h"
#include "csrc/collective/reduction_kernels.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/collective/spans.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Must be equal on all ranks.
struct CpuCollectiveOptions {
  // The size limit of the memory that buckets are packed into. Larger ones are
  // reduced in several rounds.
  size_t fusion_buffer_bytes = size_t{64} << 20;
  // A tensor of this size or more is reduced by itself, in place.
  size_t direct_bytes = size_t{4} << 20;
  // Small enough to stay in cache between arrival and reduction, large enough
  // to make the cost per segment small. Tests set it to a few bytes.
  size_t max_segment_bytes = size_t{512} << 10;
  // The largest number of ranks that are all linked with each other. If there
  // are more, each has links with its neighbours in the ring only.
  int max_exchange_ranks = 32;
  // The order of the ranks in the ring (RingPlace); empty: by number.
  std::vector<int> ring_order;
  Algorithms algorithms;
  // The size limit of the memory for values of others that wait to be folded:
  // the size of a core's own cache.
  size_t exchange_bytes = size_t{1} << 20;
  // Buckets whose tensors are smaller on average are staged.
  size_t staged_bytes = 1024;
};

// Returns the ranks that rank `rank` of `size` needs links with.
std::vector<int> CpuCollectivePeers(int rank, int size,
                                    const CpuCollectiveOptions& options);

class CpuCollective final : public BlockingCollective {
 public:
  // `transport` must outlive the object and have no other user.
  explicit CpuCollective(Transport& transport,
                         const CpuCollectiveOptions& options = {},
                         const Meter& meter = {});
  // Owns the transport.
  explicit CpuCollective(std::unique_ptr<Transport> transport,
                         const CpuCollectiveOptions& options = {},
                         const Meter& meter = {});

  Status Allreduce(const AllreduceArgs& args) override;
  Status Allgather(const AllgatherArgs& args) override;
  Status Broadcast(const BroadcastArgs& args) override;
  Status Reducescatter(const ReducescatterArgs& args) override;
  Status Alltoall(const AlltoallArgs& args) override;
  std::string Explain() const override;
  std::vector<TunableRange> Tunables() const override;
  // Does nothing: the rank's connections end.
  void PeerGone(int) override {}
  void Abort(const Status& cause) override;

 private:
  void Set(Tunable tunable, int64_t value) override;
  Status DoAllreduce(const AllreduceArgs& args);
  Status DoAllgather(const AllgatherArgs& args);
  Status DoBroadcast(const BroadcastArgs& args);
  Status DoReducescatter(const ReducescatterArgs& args);
  // Reduces elements [begin, begin + count) of each block.
  Status ReducescatterSlice(const ReducescatterArgs& args,
                            const ReductionKernels& method, int64_t begin,
                            int64_t count);
  Status DoAlltoall(const AlltoallArgs& args);
  bool exchanges() const {
    return place_.size > 1 && place_.size <= options_.max_exchange_ranks;
  }
  // These reduce row_ by an exchange.
  Status ExchangeAllreduce(const AllreduceArgs& args);
  Status ExchangeReducescatter(const ReducescatterArgs& args);
  ExchangeShape ShapeFor(const FoldMethod& method) const;
  Status RunExchange(const ExchangeSchedule& schedule, const FoldMethod& method,
                     uint64_t tag);
  Status Run(SendReceivePlan plan);
  Status RunDirect(const AllreduceArgs& args, const ReductionKernels& method,
                   const Round& round);
  Status RunPacked(const AllreduceArgs& args, const ReductionKernels& method,
                   const Round& round);
  // Reserves a buffer of `count` values, which are at *values, and of their
  // sums.
  Result<RingBuffer> ReserveBuffer(const ReductionKernels& method,
                                   int64_t count, void** values);
  Status ReduceRing(uint64_t tag, const ReductionKernels& method,
                    const RingBuffer& buffer);
  Result<void*> ReserveArrivals(size_t element_size);
  // Runs `plan`: reduces the segments that arrive and finishes those owned.
  Status RunReduction(RingReduction& plan, const ReductionKernels& method,
                      void* arrivals);
  TimedPhase Time(TracePhase phase, uint64_t tag) const {
    return TimedPhase(meter_, phase, tag);
  }

  const std::unique_ptr<Transport> owned_transport_;  // or null
  Transport& transport_;
  const CpuCollectiveOptions options_;
  // Initially as in the options; changed by Tune.
  Preference preference_ = options_.algorithms.allreduce;
  size_t exchange_bytes_ = options_.exchange_bytes;
  const int rank_;
  const RingPlace place_;
  const Meter meter_;
  ScratchBuffer fusion_buffer_;
  // One segment of a peer's partial sums, and one for widening it.
  ScratchBuffer arrivals_;
  Adasum adasum_;
  Spans row_;
  ScratchBuffer exchange_buffer_;

  // The first failure, or the cause given to Abort.
  StickyStatus broken_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_CPU_COLLECTIVE_H_
