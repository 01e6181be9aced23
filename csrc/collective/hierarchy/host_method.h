// HostMethod: how the values of the ranks of a host, and then those of hosts
// and of groups of hosts, become results: sums (HostSums), or copies of one
// rank's data for the others (HostMoves).
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_

#include "csrc/collective/fold_method.h"
#include "csrc/collective/spans.h"
#include "csrc/collective/sum_method.h"

namespace keras_ring {

// Reduce may run on another thread while Add and Fold run on this one.
class HostMethod : public SumMethod {
 public:
  // Encodes values and decodes results.
  virtual const FoldMethod& method() const = 0;
  // Returns whether rank `local_rank` of this host contributes to a piece.
  virtual bool Has(const SpanPiece& piece, int local_rank) const = 0;

  // sums[i] = the sum of the values of one host's ranks, which are encoded, or
  // are in the tensors if nothing is compressed.
  virtual void Reduce(const SpanPiece& piece, const void* const* values,
                      int num_values, char* sums) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_
