// HostMethod: how the values of the ranks of a host, and then those of hosts
// and of groups of hosts, become results: sums (HostSums), or copies of one
// rank's data for the others (HostMoves).
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_

#include <cstddef>

#include "csrc/collective/fold_method.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

// Reduce may run on another thread while Add and Fold run on this one.
class HostMethod {
 public:
  virtual ~HostMethod() = default;

  // The size of a sum, in bytes.
  virtual size_t size() const = 0;
  // Encodes values and decodes results.
  virtual const FoldMethod& method() const = 0;
  // Returns whether rank `local_rank` of this host contributes to a piece.
  virtual bool Has(const SpanPiece& piece, int local_rank) const = 0;

  // sums[i] = the sum of the values of one host's ranks, which are encoded, or
  // are in the tensors if nothing is compressed.
  virtual void Reduce(const SpanPiece& piece, const void* const* values,
                      int num_values, char* sums) = 0;
  // to[i] = the sum of sums, those of `range`, on level `level`; the level of
  // the groups of hosts is 1.
  virtual void Add(int level, const Range& range, const void* const* sums,
                   int num_sums, char* to) = 0;
  // Computes the results from the sums of the last level: see FoldMethod::Fold.
  // If this rank does not want them, the piece has no output.
  virtual void Fold(const SpanPiece& piece, const void* const* sums,
                    int num_sums, char* copy) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_
