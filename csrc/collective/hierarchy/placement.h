// Placement: which ranks are on which host.
#ifndef KERAS_RING_COLLECTIVE_HIERARCHY_PLACEMENT_H_
#define KERAS_RING_COLLECTIVE_HIERARCHY_PLACEMENT_H_

#include <string>
#include <vector>

namespace keras_ring {

// Hosts are numbered in the order of their lowest ranks, so that all ranks
// agree on it. On each host, ranks have local ranks in their order.
//
// A *lane* is a rank of each host, those of one local rank, which exchange with
// each other. There are as many lanes as the host with the fewest ranks has.
class Placement {
 public:
  // `host_ids`: by rank, the identity of its host.
  explicit Placement(const std::vector<std::string>& host_ids);

  int num_ranks() const { return static_cast<int>(hosts_.size()); }
  int num_hosts() const { return static_cast<int>(ranks_.size()); }
  int num_lanes() const { return num_lanes_; }
  int max_ranks() const { return max_ranks_; }  // on any one host
  // Returns whether a host has several ranks, and there are several hosts.
  bool is_hierarchical() const;
  int host(int rank) const { return hosts_[rank]; }
  int local_rank(int rank) const { return local_ranks_[rank]; }
  // The ranks of a host, ascending.
  const std::vector<int>& ranks(int host) const { return ranks_[host]; }
  // The ranks of a lane, by host.
  std::vector<int> Lane(int lane) const;

 private:
  std::vector<int> hosts_;        // by rank
  std::vector<int> local_ranks_;  // by rank
  std::vector<std::vector<int>> ranks_;
  int num_lanes_ = 0;
  int max_ranks_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_HIERARCHY_PLACEMENT_H_
