// Ring schedules: which bytes leave for whom, and which arrive from whom.
//
// Nomenclature. The n ranks stand in a *ring*: each sends to its *successor*
// (position + 1) and receives from its *predecessor* (position - 1), all modulo
// n. Here they are called by their positions, and stand in the order of their
// ranks unless another one is given (RingOrder). A buffer is cut into n
// *chunks*, one per rank; they differ by at most one element, and some are
// empty when there are fewer elements than ranks. A chunk is cut into
// *segments*, the pieces that move in one go. In a *step* one chunk moves over
// every link of the ring. A rank *forwards* a segment when it sends what it has
// received in the step before.
//
// Allreduce. n - 1 steps of *reduce-scatter*: in step s, rank r sends chunk
// r - s and receives chunk r - s - 1, to which it adds its own values. So chunk
// c sets out at rank c and grows on its way round, and its last stop, rank
// c - 1, *owns* its result:
//
//   ((x[c] + x[c + 1]) + x[c + 2]) + ... + x[c - 1]
//
// That is the order of the sum, on all ranks, since n - 1 steps of *allgather*
// then carry each result once more round the ring, as it is.
//
// Pipelining. Nothing waits for the end of a step. A rank sends in step s + 1
// the chunk it has received in step s. Hence, with K segments in the chunk that
// a rank sends first, receive i is what send K + i forwards, through both
// phases and across the seam between them: receive i *releases* send K + i.
// (Each send after the K-th forwards the matching receive, so it does not
// matter that chunks differ in length, nor that empty segments are left out.)
// Allgather alone and the chain broadcast obey the same rule, the latter with
// K = 0. While a segment is being reduced, the next is on the wire.
//
// Wide sums. Where sums are wider than the values (float32 of float16), only
// sums travel as wide ones. What is no sum does not: a chunk that sets out, in
// the first step, and the results, in the allgather. So of n ranks each sends
// n (of 2n - 2) chunks of values and n - 2 of sums. A segment has as many
// elements in either form, so the rule above is the same.
//
// All functions here are pure: from place, buffer and segment size to lists.
#ifndef KERAS_RING_COLLECTIVE_NET_RING_H_
#define KERAS_RING_COLLECTIVE_NET_RING_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/collective/collective.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

struct RingPlace {
  int position = 0;
  int size = 1;
  std::vector<int> order = {};  // ranks by position; empty: these are equal

  int RankAt(int at) const { return order.empty() ? at : order[at]; }
};

// Returns the place of `rank` in this order.
RingPlace RingPlaceOf(int rank, int size, const std::vector<int>& order);

// Returns the ranks host by host, in the order of the hosts' lowest ranks: so
// one rank of each host sends to another host, and one receives. `host_ids`: by
// rank, the identity of its host.
std::vector<int> RingOrder(const std::vector<std::string>& host_ids);

// A buffer to be reduced. In place if input and output are equal; else they
// must not overlap.
struct RingBuffer {
  const void* input = nullptr;
  void* output = nullptr;
  int64_t count = 0;
  size_t element_size = 1;
  // Wide sums only: holds the values before, and the results after. The sums
  // are in `output` meanwhile, which need not be initialized; `input` is not
  // used.
  void* values = nullptr;
  size_t value_size = 0;
};

// A reduction that follows a receive: accumulator[i] = accumulator[i] op
// value[i].
struct SegmentReduction {
  void* accumulator = nullptr;
  const void* value = nullptr;
  int64_t count = 0;
  // Wide sums only: this rank's values, with which the accumulator must be
  // filled first, and which the result replaces in the end.
  void* own = nullptr;
};

struct RingReduction {
  // One stream each way. Without `advance`: the caller sets it, since it knows
  // the kernel.
  SendReceivePlan duplex;
  // reductions[i] belongs to receive i; the receives after them are final.
  std::vector<SegmentReduction> reductions;
  // Wide sums only: the `value` of reductions before this one are values of
  // their rank; those of the others are sums.
  size_t first_sum = 0;
  // From this one on, a reduction yields the result for a segment of the chunk
  // that this rank owns.
  size_t first_owned = 0;
  // K, the segments of the chunk that is sent first.
  size_t num_own_segments = 0;

  // True if arrivals share the scratch memory, so that each must be reduced
  // before the next is read.
  bool uses_scratch = false;

  // Releases and allows what is possible once `reduced` receives are handled.
  void Release(size_t reduced, SendReceivePlan& streams) const;
};

// `scratch` holds one segment, at most SegmentBytes(), and is used only in
// place: out of place, partial sums arrive in the output, and the input is
// added to them there, which saves a copy. Wide sums are handled like in place.
RingReduction PlanRingAllreduce(const RingPlace& place, uint64_t tag,
                                const RingBuffer& buffer, void* scratch,
                                size_t max_segment_bytes);

// As above, in place, without the allgather: chunk c of the buffer, which has
// chunk_counts[c] elements, ends at position c - 1, which owns it.
RingReduction PlanRingReducescatter(const RingPlace& place, uint64_t tag,
                                    const RingBuffer& buffer,
                                    const std::vector<int64_t>& chunk_counts,
                                    void* scratch, size_t max_segment_bytes);

// The size of the largest segment: whole elements, at least one.
size_t SegmentBytes(size_t element_size, size_t max_segment_bytes);

// Block b of `output` is rank b's and has bytes_per_rank[b] bytes. This rank's
// own block must be in place.
SendReceivePlan PlanRingAllgather(const RingPlace& place, uint64_t tag,
                                  void* output,
                                  const std::vector<size_t>& bytes_per_rank,
                                  size_t max_segment_bytes);

// Block for block on their way round the ring, each as far as its receiver.
// In step s a rank sends what has come s - 1 ranks far: first its own blocks
// for the n - 1 others, nearest first; then, of those it received in the step
// before, all but the one that was for it.
//
// The own block is not touched. `transit` takes AlltoallTransitBytes().
SendReceivePlan PlanRingAlltoall(const RingPlace& place,
                                 const AlltoallArgs& args, void* transit,
                                 size_t max_segment_bytes);
size_t AlltoallTransitBytes(const RingPlace& place, const AlltoallArgs& args);

// From the root along the ring to the root's predecessor. Counts are bytes.
SendReceivePlan PlanChainBroadcast(const RingPlace& place, uint64_t tag,
                                   int root,
                                   const std::vector<TensorSpan>& tensors,
                                   size_t max_segment_bytes);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_RING_H_
