// LevelCut: how the ranks that meet on a level are cut into groups.
#ifndef KERAS_RING_COLLECTIVE_NET_LEVEL_CUT_H_
#define KERAS_RING_COLLECTIVE_NET_LEVEL_CUT_H_

#include <algorithm>

namespace keras_ring {

// Cuts `count` ranks; a group has `side` or a few more members, or all ranks.
class LevelCut {
 public:
  LevelCut(int count, int side)
      : num_groups_(std::max(1, count / side)),
        owners_(count / num_groups_),
        longer_(count % num_groups_) {}

  int num_groups() const { return num_groups_; }
  // The number of owners, the same in each group.
  int owners() const { return owners_; }
  // The size of the largest group: the first groups may have one more member.
  int largest() const { return owners_ + (longer_ > 0 ? 1 : 0); }
  int begin(int group) const {
    return group * owners_ + std::min(group, longer_);
  }
  int GroupOf(int index) const {
    const int in_longer = longer_ * (owners_ + 1);
    return index < in_longer ? index / (owners_ + 1)
                             : longer_ + (index - in_longer) / owners_;
  }

 private:
  int num_groups_;
  int owners_;
  int longer_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_LEVEL_CUT_H_
