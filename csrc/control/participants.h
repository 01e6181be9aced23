// Participants: the ranks of a node's part of the tree, but for those that have
// joined.
#ifndef KERAS_RING_CONTROL_PARTICIPANTS_H_
#define KERAS_RING_CONTROL_PARTICIPANTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "csrc/control/control_tree.h"

namespace keras_ring {

// A part of what all ranks have alike, as is the cache.
class Participants {
 public:
  // `tree` must outlive the object.
  explicit Participants(const ControlTree& tree)
      : tree_(tree), self_{tree.rank} {}

  const std::vector<int32_t>& joined() const { return joined_; }  // ascending
  bool HasJoined(int32_t rank) const {
    return std::binary_search(joined_.begin(), joined_.end(), rank);
  }
  // Returns whether all have now, after which none has any more.
  bool Join(int32_t rank) {
    joined_.insert(std::upper_bound(joined_.begin(), joined_.end(), rank),
                   rank);
    if (joined_.size() < static_cast<size_t>(tree_.size)) return false;
    joined_.clear();
    return true;
  }

  // The ranks that a contributor, this rank or a child, speaks for.
  std::vector<int32_t> RanksOf(int from) const {
    const std::vector<int32_t>& all =
        from == tree_.rank ? self_ : tree_.children.at(from);
    if (joined_.empty()) return all;
    std::vector<int32_t> ranks;
    std::set_difference(all.begin(), all.end(), joined_.begin(), joined_.end(),
                        std::back_inserter(ranks));
    return ranks;
  }
  // A name is complete at this node with so many of them.
  size_t NumContributors() const {
    if (joined_.empty()) return 1 + tree_.children.size();
    size_t count = HasJoined(tree_.rank) ? 0 : 1;
    for (const auto& [child, ranks] : tree_.children) {
      if (!RanksOf(child).empty()) ++count;
    }
    return count;
  }

 private:
  const ControlTree& tree_;
  const std::vector<int32_t> self_;  // {rank}
  std::vector<int32_t> joined_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_PARTICIPANTS_H_
