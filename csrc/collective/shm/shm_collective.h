// ShmCollective: the collectives among ranks of one host, through memory that
// all of them map.
//
// Nomenclature. Each rank has two *slots* of memory that the others read. What
// is sent is cut into *chunks*, numbered through all collectives of the job;
// chunk c uses slot c % 2, so that one is written while the other is read. A
// chunk has a *part* per rank: the one which that rank reduces.
//
// A rank *packs* its values of a chunk into its slot, then each *reduces* its
// part: it sums, in the order of the ranks, its own values, which it takes from
// the tensor itself, and those in the slots of the others. The result goes
// straight into the output, and into a part of the slot from which the others
// *unpack* it. Nothing else is copied: the fusion of tensors is the order in
// which they lie in the slot.
//
//   one shot   small buckets: everybody reduces everything; nothing to unpack
//   two shots  larger buckets: in the three steps described above
//
// The slots of a compressed reduction hold values of the wire dtype. A rank
// takes its own part from there too, for it must be rounded like the others.
//
// Which rank may do what when is in the comments of Allreduce in the source;
// ChunkBarrier keeps the count.
//
//   direct     tensors that lie in the arenas of their ranks (DirectTensors):
//              nothing is packed; each reduces its part from the tensors of the
//              others themselves, into its output, from which they copy it;
//              never compressed
//
// The slots are small enough to stay in the cores' caches: main memory sees
// each input read and each output written.
#ifndef KERAS_RING_COLLECTIVE_SHM_SHM_COLLECTIVE_H_
#define KERAS_RING_COLLECTIVE_SHM_SHM_COLLECTIVE_H_

#include <cstddef>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/collective/adasum.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/collective/shm/direct_tensors.h"
#include "csrc/collective/shm/slot_streams.h"
#include "csrc/collective/spans.h"
#include "csrc/comm/host/host_group.h"

namespace keras_ring {

// Must be equal on all ranks, except `barrier`.
struct ShmCollectiveOptions {
  // Bytes of a slot for each rank's part. A multiple of 64.
  size_t part_bytes = size_t{128} << 10;
  // The largest bucket [bytes of tensors, times the number of ranks that read
  // it] that is reduced in one shot.
  size_t one_shot_bytes = size_t{128} << 10;
  // Buckets of this size or more are searched for direct tensors.
  size_t direct_bytes = size_t{512} << 10;
  // Bytes of a part of direct tensors. A multiple of 64.
  size_t direct_part_bytes = size_t{512} << 10;
  // Buckets of this size or more are written past the caches: the first results
  // would not be in the caches any more once the last are written.
  size_t stream_bytes = size_t{32} << 20;
  // See InlineExecution::InlineBytes.
  int64_t inline_bytes = int64_t{1} << 20;
  int64_t adasum_round = Adasum::kRoundBytes;  // see Adasum
  ChunkBarrierOptions barrier;
};

class ShmCollective final : public BlockingCollective, public InlineExecution {
 public:
  // The value that HostGroupLayout::data_bytes must have.
  static size_t DataBytes(int size, const ShmCollectiveOptions& options);

  // `group`, and the objects that `meter` refers to, must outlive the object.
  ShmCollective(const HostGroup& group, const ShmCollectiveOptions& options,
                const Meter& meter);
  ~ShmCollective() override;

  Status Allreduce(const AllreduceArgs& args) override;
  Status Allgather(const AllgatherArgs& args) override;
  Status Broadcast(const BroadcastArgs& args) override;
  Status Reducescatter(const ReducescatterArgs& args) override;
  Status Alltoall(const AlltoallArgs& args) override;
  InlineExecution* inline_execution() override { return this; }
  int64_t InlineBytes() const override { return options_.inline_bytes; }
  void SetProgressCallback(const std::function<void()>* progress) override {
    barrier_.SetProgressCallback(progress);
  }
  std::string Explain() const override;
  std::vector<TunableRange> Tunables() const override;
  void PeerGone(int rank) override;
  void Abort(const Status& cause) override;

 private:
  struct Plan;

  void Set(Tunable tunable, int64_t value) override;

  // Runs collective(), a fallible function, unless the object is broken.
  template <typename Function>
  Status Guard(uint64_t tag, Function collective);
  Status ReduceDirectly(const std::vector<TensorSpan>& tensors,
                        const Plan& plan);
  // These reduce the tensors in spans_.
  Status ReduceThroughSlots(Plan plan);
  Status Direct(Plan plan);
  void ReduceDirect(const Plan& plan, int64_t chunk, uint64_t number);
  Status UnpackDirect(const Plan& plan, int64_t chunk, uint64_t number);
  Status OneShot(const Plan& plan);
  Status TwoShots(const Plan& plan);
  // These are steps of chunk `chunk`, which has `number` in the job.
  Status Pack(const Plan& plan, int64_t chunk, uint64_t number);
  Status Reduce(const Plan& plan, int64_t chunk, uint64_t number);
  Status Unpack(const Plan& plan, int64_t chunk, uint64_t number);
  void Fold(const Plan& plan, const SpanPiece& piece, char* copy);
  // Copies a result of another rank to the tensor it belongs to.
  void CopyResult(const Plan& plan, const SpanPiece& piece,
                  const char* result) const;
  // Packs the values of `range` to `to`, from where they are read.
  void PackTo(char* to, const Plan& plan, const Range& range) const;
  // See SlotStreams::Move.
  template <typename Give, typename Take>
  Status Move(const std::vector<int64_t>& stream_bytes, const Give& give,
              const Take& take);

  char* Slot(int local_rank, uint64_t chunk) const;
  // The part of `owner` in a slot of `local_rank`; the last one, after those of
  // the ranks, is for results.
  char* PartOf(int local_rank, uint64_t chunk, int owner) const {
    return Slot(local_rank, chunk) + owner * options_.part_bytes;
  }
  char* ResultOf(int local_rank, uint64_t chunk) const {
    return PartOf(local_rank, chunk, size_);
  }

  const HostGroup& group_;
  const ShmCollectiveOptions options_;
  // For an allreduce. Initially as in the options; changed by Tune.
  struct Tuned {
    size_t part_bytes;
    size_t one_shot_bytes;
    size_t direct_part_bytes;
  };
  Tuned tuned_;
  const int size_;
  const int local_rank_;
  const size_t slot_bytes_;
  const Meter meter_;
  ChunkBarrier barrier_;
  // Uses the parts for values. The part for results may hold those of a
  // reduction two chunks before, which are not unpacked yet.
  const SlotStreams streams_;
  uint64_t next_chunk_ = 1;
  StickyStatus broken_;  // the first failure, or the cause given to Abort

  DirectTensors direct_;
  Adasum adasum_;

  // Kept to reuse their memory.
  Spans spans_;
  std::vector<const void*> sources_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SHM_SHM_COLLECTIVE_H_
