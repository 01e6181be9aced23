// HostMoves: moves bytes from the one rank that has them to those that want
// them.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_HOST_MOVES_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_HOST_MOVES_H_

#include <cstddef>
#include <vector>

#include "csrc/collective/fold_method.h"
#include "csrc/collective/hierarchy/host_method.h"
#include "csrc/collective/hierarchy/placement.h"
#include "csrc/collective/net/levels.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

class HostMoves final : public HostMethod {
 public:
  // `sources`: for each tensor of `row`, the rank that has it. `levels`: of
  // this rank's host. All references must outlive the object.
  HostMoves(const Placement& placement, int rank,
            const std::vector<Group>& levels, const Spans& row,
            std::vector<int> sources);

  size_t size() const override { return 1; }
  const FoldMethod& method() const override { return method_; }
  bool Has(const SpanPiece& piece, int local_rank) const override {
    return HostOf(piece) == host_ &&
           placement_.local_rank(sources_[piece.tensor]) == local_rank;
  }
  void Reduce(const SpanPiece& piece, const void* const* values, int num_values,
              char* sums) override;
  void Add(int level, const Range& range, const void* const* sums, int num_sums,
           char* to) override;
  void Fold(const SpanPiece& piece, const void* const* sums, int num_sums,
            char* copy) override;

 private:
  int HostOf(const SpanPiece& piece) const {
    return placement_.host(sources_[piece.tensor]);
  }

  const FoldMethod method_;
  const Placement& placement_;
  const int host_;
  const std::vector<Group>& levels_;
  const Spans& row_;
  const std::vector<int> sources_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_HOST_MOVES_H_
