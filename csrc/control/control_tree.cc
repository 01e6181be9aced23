#include "csrc/control/control_tree.h"

#include <algorithm>

namespace keras_ring {
namespace {

// deputies[r] of each leader r; -1 for the other ranks.
std::vector<int> Deputies(const std::vector<std::string>& host_ids) {
  std::map<std::string, int> leaders;
  std::vector<int> deputies(host_ids.size(), -1);
  for (int r = 0; r < static_cast<int>(host_ids.size()); ++r) {
    const int leader = leaders.emplace(host_ids[r], r).first->second;
    // First the leader itself, then the next of its ranks, and no later one.
    if (deputies[leader] < 0 || deputies[leader] == leader) {
      deputies[leader] = r;
    }
  }
  return deputies;
}

// parents[r] for all ranks; -1 for rank 0.
std::vector<int> Parents(const std::vector<std::string>& host_ids, int fanout) {
  std::map<std::string, int> leader_index;  // host id -> index in `leaders`
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
  peers.insert(peers.end(), deputies.begin(), deputies.end());
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

ControlTree BuildJobTree(const std::vector<std::string>& host_ids, int rank,
                         int fanout) {
  ControlTree tree = BuildControlTree(host_ids, rank, fanout);
  const std::vector<int> parents = Parents(host_ids, fanout);
  const std::vector<int> deputies = Deputies(host_ids);
  for (int leader = 1; leader < tree.size; ++leader) {
    const int deputy = deputies[leader];
    if (deputy < 0) continue;
    const int above = deputies[parents[leader]];
    // Two that are alone on their hosts have a link already.
    if (deputy == leader && above == parents[leader]) continue;
    if (deputy == rank) tree.deputies.push_back(above);
    if (above == rank) tree.deputies.push_back(deputy);
  }
  std::sort(tree.deputies.begin(), tree.deputies.end());
  return tree;
}

}  // namespace keras_ring
