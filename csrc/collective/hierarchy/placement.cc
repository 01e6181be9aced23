#include "csrc/collective/hierarchy/placement.h"

#include <algorithm>
#include <map>

namespace keras_ring {

Placement::Placement(const std::vector<std::string>& host_ids) {
  std::map<std::string, int> numbers;
  for (size_t rank = 0; rank < host_ids.size(); ++rank) {
    const auto [it, is_new] =
        numbers.emplace(host_ids[rank], static_cast<int>(ranks_.size()));
    if (is_new) ranks_.emplace_back();
    std::vector<int>& of_host = ranks_[it->second];
    hosts_.push_back(it->second);
    local_ranks_.push_back(static_cast<int>(of_host.size()));
    of_host.push_back(static_cast<int>(rank));
  }
  for (const std::vector<int>& of_host : ranks_) {
    const int count = static_cast<int>(of_host.size());
    max_ranks_ = std::max(max_ranks_, count);
    num_lanes_ = num_lanes_ == 0 ? count : std::min(num_lanes_, count);
  }
}

bool Placement::is_hierarchical() const {
  return num_hosts() > 1 && num_hosts() < static_cast<int>(hosts_.size());
}

std::vector<int> Placement::Lane(int lane) const {
  std::vector<int> ranks;
  for (const std::vector<int>& of_host : ranks_) ranks.push_back(of_host[lane]);
  return ranks;
}

}  // namespace keras_ring
