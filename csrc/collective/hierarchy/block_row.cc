#include "csrc/collective/hierarchy/block_row.h"

#include <algorithm>
#include <utility>

#include "csrc/base/round.h"

namespace keras_ring {
namespace {

// Returns the room for elements if each slice may be one longer than its share.
int64_t RoomOf(const Placement& placement, size_t wire_size,
               size_t part_bytes) {
  return static_cast<int64_t>(part_bytes / wire_size) - placement.num_hosts();
}

// Walks through the blocks of a host's ranks.
class HostBlocks {
 public:
  HostBlocks(const std::vector<int>& ranks, const std::vector<int64_t>& counts)
      : ranks_(ranks), counts_(counts) {
    for (int rank : ranks) total_ += counts[rank];
  }

  // Up to its share after `parts` of `all` parts.
  int64_t Until(int64_t parts, int64_t all) const {
    // Without overflow: the product of the two may be large.
    return total_ / all * parts + total_ % all * parts / all;
  }
  // The pieces until there.
  void Take(int64_t until, std::vector<BlockRow::Piece>& pieces) {
    while (at_ < until) {
      const int64_t left = counts_[ranks_[index_]] - begin_;
      const int64_t count = std::min(left, until - at_);
      if (count > 0) pieces.push_back({ranks_[index_], begin_, count});
      at_ += count;
      begin_ += count;
      if (count < left) return;
      ++index_;
      begin_ = 0;
    }
  }
  int64_t at() const { return at_; }

 private:
  const std::vector<int>& ranks_;
  const std::vector<int64_t>& counts_;
  int64_t total_ = 0;
  size_t index_ = 0;   // of the rank whose block is next
  int64_t begin_ = 0;  // in it
  int64_t at_ = 0;
};

}  // namespace

struct BlockRow::Cut {
  Cut(const Placement& placement, const std::vector<int64_t>& counts, int lanes,
      size_t wire_size, size_t part_bytes)
      : parts(lanes, {0}) {
    int64_t total = 0;
    for (int64_t count : counts) total += count;
    const int64_t room = RoomOf(placement, wire_size, part_bytes);
    const int64_t num_parts = DivideUp(total, room * lanes) * lanes;
    std::vector<HostBlocks> hosts;
    for (int host = 0; host < placement.num_hosts(); ++host) {
      hosts.emplace_back(placement.ranks(host), counts);
    }
    int64_t end = 0;
    std::vector<int64_t> part_begins = {0};
    for (int64_t part = 0; part < num_parts; ++part) {
      for (HostBlocks& blocks : hosts) {
        begins.push_back(end);
        const int64_t until = blocks.Until(part + 1, num_parts);
        end += until - blocks.at();
        blocks.Take(until, pieces);
      }
      part_begins.push_back(end);
    }
    begins.push_back(end);
    parts = StageParts(lanes, std::move(part_begins));
  }

  std::vector<Piece> pieces;
  std::vector<int64_t> begins;
  StageParts parts;
};

bool BlockRow::Fits(const Placement& placement, size_t wire_size,
                    size_t part_bytes) {
  return RoomOf(placement, wire_size, part_bytes) > 0;
}

BlockRow::BlockRow(const Placement& placement,
                   const std::vector<int64_t>& counts, int lanes,
                   size_t wire_size, size_t part_bytes)
    : BlockRow(placement.num_hosts(),
               Cut(placement, counts, lanes, wire_size, part_bytes)) {}

BlockRow::BlockRow(int num_hosts, Cut cut)
    : num_hosts_(num_hosts),
      pieces_(std::move(cut.pieces)),
      begins_(std::move(cut.begins)),
      parts_(std::move(cut.parts)) {}

Range BlockRow::Slices(int64_t chunk, int lane, int begin, int end) const {
  const int64_t first = (chunk * parts_.lanes() + lane) * num_hosts_;
  return {begins_[first + begin], begins_[first + end]};
}

}  // namespace keras_ring
