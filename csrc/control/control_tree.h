// ControlTree: which rank reports its readiness to which.
#ifndef KERAS_RING_CONTROL_CONTROL_TREE_H_
#define KERAS_RING_CONTROL_CONTROL_TREE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace keras_ring {

// One rank's position in the tree: rank -> leader of its host (the lowest rank
// there) -> leaders in a k-ary tree -> rank 0, the coordinator. An inner node
// speaks for its whole subtree, so the number of messages that the coordinator
// handles grows with its children, not with the ranks.
struct ControlTree {
  int rank = 0;
  int size = 1;
  int parent = -1;  // -1 at the coordinator
  // The ranks below each child, the child included, ascending.
  std::map<int, std::vector<int32_t>> children;
  int levels_below = 0;  // 0 at a leaf
  // Not a part of the tree: see BuildJobTree. Ascending.
  std::vector<int> deputies;

  bool is_root() const { return parent < 0; }
  // Parent, children and deputies.
  std::vector<int> Peers() const;
};

// Children of a host leader that are leaders themselves. Eight keeps the tree
// of 512 hosts three levels high.
inline constexpr int kControlFanout = 8;

// `host_ids[r]` names the host of rank r.
ControlTree BuildControlTree(const std::vector<std::string>& host_ids, int rank,
                             int fanout = kControlFanout);

// The same for a job, whose ranks must hear of the death of any rank. A host's
// deputy is its second lowest rank, or its leader if that is alone. Between the
// deputies of two hosts whose leaders have a link there is one more: the ranks
// of a host reach the others without their leader, when that is the one that
// has died.
ControlTree BuildJobTree(const std::vector<std::string>& host_ids, int rank,
                         int fanout = kControlFanout);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_CONTROL_TREE_H_
