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
  // Bound of the memory that buckets are packed into. Larger ones are reduced
  // in several rounds.
  size_t fusion_buffer_bytes = size_t{64} << 20;
  // A tensor of this size is reduced by itself, where it lies.
  size_t direct_bytes = size_t{4} << 20;
  // Small enough to stay in cache between arrival and reduction, large enough
  // to make what is done once per segment cheap. Tests set it to a few bytes.
  size_t max_segment_bytes = size_t{512} << 10;
  // The most ranks that have links with each other, all with all. Beyond, each
  // has links with its neighbours in the ring alone.
  int max_exchange_ranks = 32;
  // Of the ranks in the ring (RingPlace); empty: that of their numbers.
  std::vector<int> ring_order;
  Algorithms algorithms;
  // Bound of the memory for values of others that wait to be folded: what a
  // core's own cache holds.
  size_t exchange_bytes = size_t{1} << 20;
  // Tensors that are smaller on average are staged.
  size_t staged_bytes = 1024;
};

// Whom rank `rank` of `size` needs links with.
std::vector<int> CpuCollectivePeers(int rank, int size,
                                    const CpuCollectiveOptions& options);

class CpuCollective final : public BlockingCollective {
 public:
  // `transport` must outlive the object and have no other user.
  explicit CpuCollective(Transport& transport,
                         const CpuCollectiveOptions& options = {},
                         const Meter& meter = {});
  // Owns it.
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
  // Nothing: its connections end.
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
  // These reduce the row by exchanging it.
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
  // A buffer of so many values, which lie at *values, and of their sums.
  Result<RingBuffer> ReserveBuffer(const ReductionKernels& method,
                                   int64_t count, void** values);
  Status ReduceRing(uint64_t tag, const ReductionKernels& method,
                    const RingBuffer& buffer);
  Result<void*> ReserveArrivals(size_t element_size);
  // Runs `plan`: reduces what comes in and finishes what is owned.
  Status RunReduction(RingReduction& plan, const ReductionKernels& method,
                      void* arrivals);
  TimedPhase Time(TracePhase phase, uint64_t tag) const {
    return TimedPhase(meter_, phase, tag);
  }

  const std::unique_ptr<Transport> owned_transport_;  // or null
  Transport& transport_;
  const CpuCollectiveOptions options_;
  // As in the options, as long as nobody tunes them.
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

  // The first failure, or what Abort gave.
  StickyStatus broken_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_CPU_COLLECTIVE_H_
