// Adasum: a sum of vectors that leaves out what they have in common.
//
// For two vectors (Maleki et al., "Scaling Distributed Training with Adaptive
// Summation", MLSys 2021):
//
//   Adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// That is a + b where they are at right angles, and a where they are equal. A
// factor with a denominator of zero is 1, so a vector of zeros adds nothing.
//
// For n: in the order of the ranks, 0 with 1, 2 with 3 and so on make one
// vector of each pair; of these the first with the second, and so on until one
// is left. Where their number is odd, the last is carried up as it is: of five
// ranks it is Adasum(Adasum(Adasum(0, 1), Adasum(2, 3)), 4). Each tensor is a
// vector of its own, whatever shares its bucket.
//
// How. The tensors of a bucket are one row of elements, of which each rank
// takes a *slice*: it gets that of all ranks (an alltoall), combines them level
// by level, and gives the others the result (an allgather). For the factors of
// a level the ranks sum what the slices add to each dot product (an allreduce
// of three numbers for each pair and tensor). So all ranks compute the same
// factors, each element is computed on one rank, and all get the same bits.
//
// Costs: a rank sends and receives as much as in an allreduce on one host.
// Round a ring blocks pass through the ranks between: n / 2 times the tensors,
// where an allreduce moves them twice. Memory: that of the tensors of a round,
// twice (four times where sums are wide); a round is a tensor, or several of
// kRoundBytes together. What a slice adds to a dot product depends on where the
// tensor lies in its round, and so do the last bits, unless each tensor has a
// round of its own.
#ifndef KERAS_RING_COLLECTIVE_ADASUM_H_
#define KERAS_RING_COLLECTIVE_ADASUM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/reduction_kernels.h"
#include "csrc/collective/scratch_buffer.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

class Adasum {
 public:
  static constexpr int64_t kRoundBytes = int64_t{16} << 20;

  // `round_bytes`: the size of the tensors of a round together; 0: each tensor
  // has its own round.
  explicit Adasum(int64_t round_bytes = kRoundBytes)
      : round_bytes_(round_bytes) {}

  // Uses the other operations of `collective`, in which this rank is `rank` of
  // `size`.
  Status Allreduce(const AllreduceArgs& args, int rank, int size,
                   BlockingCollective& collective);

 private:
  struct Round;

  Status Run(const Round& round, const std::vector<TensorSpan>& tensors);
  // Combines the slices of all ranks into the result's slice, in slices_[0].
  Status Combine(const Round& round);
  // Multiplies the pairs (slices_[0], slices_[1]), (slices_[2], slices_[3]) ...
  Status MultiplyPairs(const Round& round, std::vector<double>& products);

  const int64_t round_bytes_;
  Spans spans_;
  // The row in the wire dtype, the slice of each rank that has arrived, and
  // these slices widened.
  ScratchBuffer row_;
  ScratchBuffer arrived_;
  ScratchBuffer widened_;
  std::vector<char*> slices_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_ADASUM_H_
