// Participants: the ranks of a node's part of the tree, but for those that have
// joined.
#ifndef KERAS_RING_CONTROL_PARTICIPANTS_H_
#define KERAS_RING_CONTROL_PARTICIPANTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "csrc/control/control_tree.h"
#include "csrc/control/joined_ranks.h"

namespace keras_ring {

// A part of what all ranks have alike, as is the cache. Asked for each name and
// contributor, so a join does the work.
class Participants {
 public:
  // `tree` must outlive the object.
  explicit Participants(const ControlTree& tree) : tree_(tree) { Restart(); }

  const JoinedRanks& joined() const { return joined_; }
  // These have, ascending, none of them before. Returns whether all have now,
  // after which none has any more.
  bool Join(const std::vector<int32_t>& ranks);

  // The ranks that a contributor, this rank or a child, speaks for.
  const std::vector<int32_t>& RanksOf(int from) const {
    return ranks_of_.at(from);
  }
  // A name is complete at this node with so many of them.
  size_t NumContributors() const { return num_contributors_; }

 private:
  void Restart();

  const ControlTree& tree_;
  JoinedRanks joined_;
  std::map<int, std::vector<int32_t>> ranks_of_;
  size_t num_contributors_ = 0;  // for whom ranks are left
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_PARTICIPANTS_H_
