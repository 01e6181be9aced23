#include "csrc/control/control_tree.h"

#include <algorithm>

namespace keras_ring {
namespace {

// parents[r] for all ranks; -1 for rank 0.
std::vector<int> Parents(const std::vector<std::string>& host_ids, int fanout) {
  std::map<std::string, int> leader_index;  // host id -> place in `leaders`
  std::vector<int> leaders;                 // by first appearance; rank 0 first
  std::vector<int> parents(host_ids.size(), -1);
  for (int r = 0; r < static_cast<int>(host_ids.size()); ++r) {
    auto [it, is_new] = leader_index.emplace(host_ids[r], leaders.size());
    if (is_new) {
      int index = it->second;
      leaders.push_back(r);
      if (index > 0) parents[r] = leaders[(index - 1) / fanout];
    } else {
      parents[r] = leaders[it->second];
    }
  }
  return parents;
}

}  // namespace

std::vector<int> ControlTree::Peers() const {
  std::vector<int> peers;
  if (!is_root()) peers.push_back(parent);
  for (const auto& [child, ranks] : children) peers.push_back(child);
  return peers;
}

ControlTree BuildControlTree(const std::vector<std::string>& host_ids, int rank,
                             int fanout) {
  const std::vector<int> parents = Parents(host_ids, fanout);
  ControlTree tree;
  tree.rank = rank;
  tree.size = static_cast<int>(host_ids.size());
  tree.parent = parents[rank];
  for (int r = 0; r < tree.size; ++r) {
    // Climb from r; if that passes through `rank`, r is below the child we
    // came from. A parent has a lower rank than its child, so it ends.
    int levels = 1;
    for (int node = r; node > rank; node = parents[node], ++levels) {
      if (parents[node] == rank) {
        tree.children[node].push_back(r);
        tree.levels_below = std::max(tree.levels_below, levels);
        break;
      }
    }
  }
  return tree;
}

}  // namespace keras_ring
