// HostSums: a reduction in several levels: over the ranks of each host, perhaps
// over groups of hosts, then over all.
//
//   values                       a sum is
//   float32, float64             of that dtype
//   float16, bfloat16            float32, exact as far as float32 is
//   integers, Average            int64, exact
//   other integers               of that dtype
//   compressed                   of 16 bits, rounded on each level, besides
//                                what Reduction speaks of. float16 is divided
//                                on each by a power of two, no less than what
//                                is summed there, so that no sum overflows
//                                whose average does not.
//
// All sums are divided, and multiplied by postscale, at the end.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HOST_SUMS_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HOST_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/collective/collective.h"
#include "csrc/collective/fold_method.h"
#include "csrc/collective/hierarchy/host_method.h"
#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/kernels/pack.h"
#include "csrc/collective/kernels/reduce.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

class HostSums final : public HostMethod {
 public:
  // max_sums[0]: the most ranks of a host; max_sums[l]: the most sums that are
  // added on level l, below the last. Equal on all ranks.
  HostSums(const Reduction& reduction, const std::vector<int>& max_sums);

  size_t size() const override { return size_; }
  const FoldMethod& method() const override { return method_; }
  bool Has(const SpanPiece&, int) const override { return true; }
  void Reduce(const SpanPiece& piece, const void* const* values, int num_values,
              char* sums) override;
  void Add(int level, const Range& range, const void* const* sums, int num_sums,
           char* to) override;
  void Fold(const SpanPiece& piece, const void* const* sums, int num_sums,
            char* copy) override;

 private:
  void ReduceWide(const void* const* values, int num_values, int64_t count,
                  char* sums);
  void FoldWide(const SpanPiece& piece, const void* const* sums, int num_sums,
                char* copy);

  const FoldMethod method_;  // of encoded values
  const FoldMethod across_;  // of sums
  FoldKernel reduce_;
  std::vector<Finish> finish_;  // of a sum, by level
  // Widens values, if sums are wide; else null.
  const AccumulatorFormat* wide_ = nullptr;
  ReduceKernel add_wide_ = nullptr;
  size_t size_;
  // Aligned for any dtype. Two buffers, since another thread may reduce while
  // this one folds.
  std::vector<int64_t> reduce_scratch_;
  std::vector<int64_t> fold_scratch_;
  std::vector<int64_t> discarded_;  // results that this rank does not want
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HOST_SUMS_H_
