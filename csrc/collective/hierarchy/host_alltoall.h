// HostAlltoall: an alltoall among ranks on several hosts.
//
// Blocks for ranks of the same host go through shared memory. The others go
//
//   from rank to rank   where all ranks are linked
//   by lanes            elsewhere: what the ranks of a host have for a rank of
//                       another one is collected by the rank here whose lane it
//                       is, and sent from lane to lane over the levels
//                       (PlanAlltoall). So a rank sends to as many others as
//                       there are hosts, or twice the square root of it.
//
// A rank that has no lane receives by that of local rank `local_rank % lanes`.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HOST_ALLTOALL_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HOST_ALLTOALL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/hierarchy/placement.h"
#include "csrc/collective/net/levels_alltoall.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/collective/shm/slot_streams.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// The run of one collective.
class HostAlltoall {
 public:
  // All references must outlive the object. `args` have sizes for all ranks.
  // `next_chunk`: the next chunk number of the streams. `scratch`: memory that
  // is reused by the next run.
  HostAlltoall(const Placement& placement, Transport& transport,
               const SlotStreams& streams, uint64_t& next_chunk,
               const AlltoallArgs& args, std::deque<ScratchBuffer>& scratch);

  // Needs links with all ranks.
  Status RunDirect();
  // `steps`: for this rank's host; ignored if the rank has no lane.
  Status RunByLanes(const std::vector<AlltoallStep>& steps);

 private:
  // The blocks that the ranks of this host have for each other.
  struct LocalMoves {
    explicit LocalMoves(int size)
        : bytes(size, std::vector<int64_t>(size)), gives(size), takes(size) {}

    std::vector<std::vector<int64_t>> bytes;  // [from][to], equal on all ranks
    // For this rank: inputs by receiver, and outputs by sender.
    std::vector<std::vector<TensorSpan>> gives;
    std::vector<std::vector<TensorSpan>> takes;
  };

  int lanes() const { return placement_.num_lanes(); }
  bool has_lane() const { return local_rank_ < lanes(); }
  int local_size() const { return static_cast<int>(locals_.size()); }
  size_t Bytes(int from, int to) const { return args_.bytes(from, to); }
  // This rank's block for another rank, and from another rank.
  const char* InputFor(int to) const;
  char* OutputFrom(int from) const;
  // Calls f(from, to) for the blocks that `lane` carries from one host to
  // another, in the order in which they are sent.
  template <typename Function>
  void ForEachBlock(const Parcel& parcel, int lane, Function f) const;
  size_t BytesOf(const Parcel& parcel) const;  // in this rank's lane
  // Returns the memory in the input or the output that holds all blocks of
  // `parcel` exactly as they are sent; null if there is none.
  const char* InInput(const Parcel& parcel) const;
  char* InOutput(const Parcel& parcel) const;

  void AddLocal(int from, int to, size_t bytes, const char* input, char* output,
                LocalMoves& moves) const;
  void AddBlocksOfHost(LocalMoves& moves) const;
  // Adds the blocks that this rank's lane, or another lane of this host, is to
  // send.
  Status AddBlocksForLanes(LocalMoves& moves);
  Status RunLocal(const LocalMoves& moves);
  Status RunStep(const AlltoallStep& step, ScratchBuffer& scratch);
  // Delivers the blocks that the lanes have received.
  Status Deliver();

  const Placement& placement_;
  Transport& transport_;
  const SlotStreams& streams_;
  uint64_t& next_chunk_;
  const AlltoallArgs& args_;
  std::deque<ScratchBuffer>& scratch_;
  const int rank_;
  const int size_;
  const int host_;
  const int local_rank_;
  const std::vector<int>& locals_;  // the ranks of this host
  std::vector<size_t> input_begins_;
  std::vector<size_t> output_begins_;

  // The parcels of this rank's lane that are here now.
  std::map<std::pair<int, int>, const char*> held_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HOST_ALLTOALL_H_
