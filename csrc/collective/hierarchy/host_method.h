// HostMethod: how the values of the ranks of a host, and then those of hosts
// and of groups of hosts, become results: sums (HostSums), or what one rank has
// for the others (HostMoves).
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_

#include <cstddef>

#include "csrc/collective/fold_method.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

// Another thread may reduce while one adds and folds.
class HostMethod {
 public:
  virtual ~HostMethod() = default;

  // The bytes of a sum.
  virtual size_t size() const = 0;
  // How values are encoded, and results decoded.
  virtual const FoldMethod& method() const = 0;
  // Whether rank `local_rank` of this host has values of a piece.
  virtual bool Has(const SpanPiece& piece, int local_rank) const = 0;

  // sums[i] = the sum of the values of one host's ranks, which are encoded, or
  // lie in tensors where nothing is compressed.
  virtual void Reduce(const SpanPiece& piece, const void* const* values,
                      int num_values, char* sums) = 0;
  // to[i] = the sum of sums, those of `range`, on level `level`: that of the
  // groups of hosts is 1.
  virtual void Add(int level, const Range& range, const void* const* sums,
                   int num_sums, char* to) = 0;
  // The results of the sums of the last level: see FoldMethod::Fold. This rank
  // may not want them: then the piece has no output.
  virtual void Fold(const SpanPiece& piece, const void* const* sums,
                    int num_sums, char* copy) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HOST_METHOD_H_
