#include "csrc/base/rank_set.h"

#include <algorithm>

namespace keras_ring {

std::vector<int32_t> RankSet::Global(std::vector<int32_t> ranks) const {
  for (int32_t& rank : ranks) rank = Global(rank);
  return ranks;
}

int32_t RankSet::Local(int32_t global) const {
  if (is_job()) return global;
  const auto it = std::lower_bound(members_.begin(), members_.end(), global);
  if (it == members_.end() || *it != global) return -1;
  return static_cast<int32_t>(it - members_.begin());
}

std::string RankSet::Text() const {
  if (is_job()) return "the job";
  return "process set " + std::to_string(number_) + " (" + RanksText(members_) +
         ")";
}

std::string RankList(const std::vector<int32_t>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string RanksText(const std::vector<int32_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + RankList(ranks);
}

}  // namespace keras_ring
