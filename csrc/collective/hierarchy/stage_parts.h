// StageParts: cuts the row of a collective for the ranks of a host: into
// chunks, and each chunk into a part per lane.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_STAGE_PARTS_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_STAGE_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "csrc/collective/spans.h"

namespace keras_ring {

// Bytes on the wire; multiples of 64.
struct PartSizes {
  size_t most = 0;
  // of the first chunk and of the last; at most `most`
  size_t ends = 0;
};

class StageParts {
 public:
  // `begins`: [chunk * lanes + lane], and the end.
  StageParts(int lanes, std::vector<int64_t> begins)
      : lanes_(lanes), begins_(std::move(begins)) {}

  // As few chunks as possible, of equal size, and parts of whole cache lines,
  // of at most `part_bytes`. `wire_size`: of an element.
  static StageParts Even(int64_t count, int lanes, size_t wire_size,
                         size_t part_bytes);
  // Parts of the first chunk have `ends` bytes, those of the next twice as
  // many, and so on up to `most`; the last chunks shrink in the same way. The
  // reason: nothing is sent before the first part is summed on its host, nor
  // while the last one is copied there.
  static StageParts Tapered(int64_t count, int lanes, size_t wire_size,
                            const PartSizes& bytes);

  int lanes() const { return lanes_; }
  int64_t num_chunks() const {
    return static_cast<int64_t>(begins_.size() - 1) / lanes_;
  }
  Range Part(int64_t chunk, int lane) const {
    const size_t at = chunk * lanes_ + lane;
    return {begins_[at], begins_[at + 1]};
  }
  // The parts of a lane in all chunks.
  std::vector<Range> PartsOf(int lane) const;
  int64_t max_count() const;  // of a part

 private:
  int lanes_;
  std::vector<int64_t> begins_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_STAGE_PARTS_H_
