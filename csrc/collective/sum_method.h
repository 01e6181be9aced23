// SumMethod: how sums of several hosts become sums of all, and then results.
#ifndef KERAS_RING_COLLECTIVE_SUM_METHOD_H_
#define KERAS_RING_COLLECTIVE_SUM_METHOD_H_

#include <cstddef>

#include "csrc/collective/spans.h"

namespace keras_ring {

class SumMethod {
 public:
  virtual ~SumMethod() = default;

  // The size of a sum, in bytes.
  virtual size_t size() const = 0;
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

#endif  // KERAS_RING_COLLECTIVE_SUM_METHOD_H_
