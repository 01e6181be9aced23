// HierarchicalCollective: the collectives of ranks on several hosts, some of
// which have several: shared memory within a host, a transport between them.
//
// Allreduce. Each lane's part of a chunk is reduced by its rank on each host,
// exchanged with the other hosts, and put where the ranks of its host find it
// (HostStage, ExchangeRun). So every host sends each byte once, all lanes at
// the same time, and the next chunks are packed and reduced meanwhile. More
// hosts than can all talk to each other form groups (PlanLevels).
//
// Tensors that the ranks of a host can read where they lie (TensorPlaces) are
// not copied into memory for others.
//
// The order of a sum is that of the ranks within each host, then that of the
// hosts within each group, and so on: it does not depend on timing, and all
// ranks get the same bits.
//
// Broadcast, allgather, reducescatter. The same, where one rank has the values
// (HostMoves), or one wants the results: no byte goes to a host twice, however
// many of its ranks want it. Blocks of ranks are interleaved (BlockRow), so
// that all hosts send all the time.
//
// Alltoall. Each byte of it has one receiver; blocks for other hosts go by
// lanes where not all ranks are linked (HostAlltoall).
//
// What the options ask for by name goes from rank to rank (CpuCollective).
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHICAL_COLLECTIVE_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHICAL_COLLECTIVE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/meter.h"
#include "csrc/base/status.h"
#include "csrc/base/sticky_status.h"
#include "csrc/base/task_thread.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/hierarchy/block_row.h"
#include "csrc/collective/hierarchy/host_method.h"
#include "csrc/collective/hierarchy/host_stage.h"
#include "csrc/collective/hierarchy/placement.h"
#include "csrc/collective/hierarchy/stage_parts.h"
#include "csrc/collective/net/cpu_collective.h"
#include "csrc/collective/net/levels.h"
#include "csrc/collective/net/levels_alltoall.h"
#include "csrc/collective/net/levels_run.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/collective/shm/chunk_barrier.h"
#include "csrc/collective/shm/slot_streams.h"
#include "csrc/collective/shm/tensor_places.h"
#include "csrc/collective/spans.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Must be equal on all ranks, except `barrier`.
struct HierarchicalOptions {
  HostStageOptions stage;
  // The largest row [bytes] that uses a single lane: more lanes would add
  // messages.
  size_t one_lane_bytes = size_t{64} << 10;
  // Buckets of this size or more are searched for tensors in arenas.
  size_t direct_bytes = size_t{512} << 10;
  // Buckets of this size or more use the helper thread, too, if there is one.
  size_t helper_bytes = size_t{1} << 20;
  // The first part of a lane and its last one have `end_bytes`, times the hosts
  // of a rank's groups, each of which costs the time of a message, and divided
  // by the square of the ranks of a host: the more there are, the longer is a
  // part summed there, and the less does each lane send. At least
  // `min_end_bytes`.
  size_t end_bytes = size_t{512} << 10;
  size_t min_end_bytes = size_t{64} << 10;
  // More hosts than `max_hosts` form groups of `group_side`. If that is 0, the
  // groups have about the same size on each level, with as few levels as groups
  // of about `max_side` allow, but at least two.
  int max_hosts = 32;
  int group_side = 0;
  int max_side = 16;
  CpuCollectiveOptions flat;
  ChunkBarrierOptions barrier;
};

// Returns the `side` of PlanLevels for this number of hosts.
int GroupSide(int num_hosts, const HierarchicalOptions& options);

// The same for an alltoall. It has at most two levels: each of them sends a
// block once more.
int AlltoallSide(int num_hosts, const HierarchicalOptions& options);

// Returns how to cut an allreduce of which a lane has `lane_bytes`. `most`:
// limit of a part. `groups`: the size of the largest group, by level.
PartSizes PartSizesOf(size_t lane_bytes, size_t most, int ranks_per_host,
                      const std::vector<int>& groups,
                      const HierarchicalOptions& options);

// Returns the ranks that rank `rank` needs links with.
std::vector<int> HierarchicalPeers(const Placement& placement, int rank,
                                   const HierarchicalOptions& options);

class HierarchicalCollective final : public BlockingCollective {
 public:
  // `group`: the ranks of this host, perhaps only one. `transport`: of all
  // ranks, with no other user. The objects that `meter` refers to must outlive
  // this one. `helper`: see HostStage; set on this rank independently of
  // others. Null: there is none.
  HierarchicalCollective(std::shared_ptr<const HostGroup> group,
                         Placement placement,
                         std::unique_ptr<Transport> transport,
                         const HierarchicalOptions& options, const Meter& meter,
                         std::unique_ptr<TaskThread> helper = nullptr);
  ~HierarchicalCollective() override;

  Status Allreduce(const AllreduceArgs& args) override;
  Status Allgather(const AllgatherArgs& args) override;
  Status Broadcast(const BroadcastArgs& args) override;
  Status Reducescatter(const ReducescatterArgs& args) override;
  Status Alltoall(const AlltoallArgs& args) override;
  std::string Explain() const override;
  std::vector<TunableRange> Tunables() const override;
  void PeerGone(int rank) override;
  void Abort(const Status& cause) override;

 private:
  void Set(Tunable tunable, int64_t value) override;
  // Runs collective(), a fallible function, unless the object is broken.
  template <typename Function>
  Status Guard(uint64_t tag, Function collective);
  // These run the tensors in row_ over the levels.
  Status DoAllreduce(const AllreduceArgs& args);
  Status DoBroadcast(const BroadcastArgs& args);
  Status DoAllgather(const AllgatherArgs& args);
  Status DoReducescatter(const ReducescatterArgs& args);
  Status DoAlltoall(const AlltoallArgs& args);
  int LanesFor(size_t bytes) const;
  bool HasRoomForBlocks(size_t wire_size) const;
  // `row` must outlive the result.
  Traffic TrafficOf(Traffic::Kind kind, const BlockRow& row) const;
  Status Run(HostMethod& method, const StageParts& parts, Preference preference,
             const Traffic& traffic, TensorPlaces* places = nullptr);
  // Returns whether the ranks of this host read each other's tensors in place.
  bool ReadsInPlace(const FoldMethod& method) const;
  Status RunStage(HostStage& stage);
  Status RunLane(HostStage& stage, HostMethod& method,
                 const std::vector<Range>& chunks, const LevelsShape& shape);

  const std::shared_ptr<const HostGroup> group_;
  const Placement placement_;
  const std::unique_ptr<Transport> transport_;
  const HierarchicalOptions options_;
  // Initially as in the options; changed by Tune.
  Preference preference_ = options_.flat.algorithms.allreduce;
  size_t part_bytes_ = options_.stage.part_bytes;
  size_t one_lane_bytes_ = options_.one_lane_bytes;
  const Meter meter_;
  const HostSlots slots_;
  ChunkBarrier barrier_;
  TensorPlaces places_;
  const SlotStreams streams_;
  CpuCollective flat_;
  const std::vector<Group> levels_;  // of hosts; none: this rank has no lane
  const std::vector<int> groups_;    // the most hosts of one, by level
  const std::vector<int> max_sums_;  // see HostSums
  uint64_t next_chunk_ = 1;
  StickyStatus broken_;  // the first failure, or the cause given to Abort

  // Kept to reuse their memory.
  Spans row_;
  std::deque<ScratchBuffer> scratch_;  // by level
  std::deque<ScratchBuffer> alltoall_scratch_;
  std::vector<AlltoallStep> alltoall_steps_;  // empty: not planned yet

  const std::unique_ptr<TaskThread> helper_;  // or null
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HIERARCHICAL_COLLECTIVE_H_
