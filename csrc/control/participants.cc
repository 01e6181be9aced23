#include "csrc/control/participants.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace keras_ring {

void Participants::Restart() {
  joined_ = JoinedRanks();
  ranks_of_ = tree_.children;
  ranks_of_[tree_.rank] = {tree_.rank};
  num_contributors_ = ranks_of_.size();
}

bool Participants::Join(const std::vector<int32_t>& ranks) {
  if (joined_.size() + ranks.size() == static_cast<size_t>(tree_.size)) {
    Restart();
    return true;
  }
  std::vector<int32_t> joined;
  std::merge(joined_.begin(), joined_.end(), ranks.begin(), ranks.end(),
             std::back_inserter(joined));
  joined_ = JoinedRanks(std::move(joined));
  num_contributors_ = 0;
  for (auto& [from, own] : ranks_of_) {
    own.erase(
        std::remove_if(own.begin(), own.end(),
                       [&](int32_t rank) { return joined_.Contains(rank); }),
        own.end());
    if (!own.empty()) ++num_contributors_;
  }
  return false;
}

}  // namespace keras_ring
