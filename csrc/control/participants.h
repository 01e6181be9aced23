// Participants: the ranks of a node's subtree that have not joined.
#ifndef KERAS_RING_CONTROL_PARTICIPANTS_H_
#define KERAS_RING_CONTROL_PARTICIPANTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "csrc/control/control_tree.h"
#include "csrc/control/joined_ranks.h"

namespace keras_ring {

// Part of the replicated state, like the cache. It is queried for each name and
// contributor, so Join does the work.
class Participants {
 public:
  // `tree` must outlive the object.
  explicit Participants(const ControlTree& tree) : tree_(tree) { Restart(); }

  const JoinedRanks& joined() const { return joined_; }
  // `ranks` have joined: ascending, none of them before. Returns true if all
  // ranks have joined now; then the set of joined ranks is empty again.
  bool Join(const std::vector<int32_t>& ranks);

  // Returns the ranks that a contributor, this rank or a child, speaks for.
  const std::vector<int32_t>& RanksOf(int from) const {
    return ranks_of_.at(from);
  }
  // The number of contributors with which a name is complete at this node.
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
