// BlockRow: the blocks of all ranks as a single row for the hierarchy.
//
// Each part of it has a *slice* of every host, in the order of the hosts, so
// that all hosts have something to send or to fold at any time. The length of a
// slice is proportional to what the host's ranks have together.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_BLOCK_ROW_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_BLOCK_ROW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/collective/hierarchy/placement.h"
#include "csrc/collective/hierarchy/stage_parts.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

class BlockRow {
 public:
  // Elements of the block of `rank`, beginning with `begin`.
  struct Piece {
    int rank = 0;
    int64_t begin = 0;
    int64_t count = 0;
  };

  // Returns whether a part has room for a slice of each host.
  static bool Fits(const Placement& placement, size_t wire_size,
                   size_t part_bytes);

  // counts[rank]: elements. Uses as few chunks as the parts allow.
  BlockRow(const Placement& placement, const std::vector<int64_t>& counts,
           int lanes, size_t wire_size, size_t part_bytes);

  // In the order of the row, without empty ones.
  const std::vector<Piece>& pieces() const { return pieces_; }
  const StageParts& parts() const { return parts_; }
  // The slices of hosts [begin, end).
  Range Slices(int64_t chunk, int lane, int begin, int end) const;

 private:
  struct Cut;
  BlockRow(int num_hosts, Cut cut);

  const int num_hosts_;
  const std::vector<Piece> pieces_;
  // The beginnings of the slices of all parts, one after the other; and the
  // end.
  const std::vector<int64_t> begins_;
  const StageParts parts_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_BLOCK_ROW_H_
