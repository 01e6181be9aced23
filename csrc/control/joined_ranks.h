// JoinedRanks: the ranks that have joined, and contribute nothing any more.
#ifndef KERAS_RING_CONTROL_JOINED_RANKS_H_
#define KERAS_RING_CONTROL_JOINED_RANKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace keras_ring {

// An immutable value, so copies share the list: each bucket has one.
class JoinedRanks {
 public:
  JoinedRanks() = default;  // none
  // Ascending.
  explicit JoinedRanks(std::vector<int32_t> ranks)
      : ranks_(std::make_shared<const std::vector<int32_t>>(std::move(ranks))) {
  }

  bool empty() const { return size() == 0; }
  size_t size() const { return ranks_ == nullptr ? 0 : ranks_->size(); }
  bool Contains(int32_t rank) const {
    return ranks_ != nullptr &&
           std::binary_search(ranks_->begin(), ranks_->end(), rank);
  }
  const int32_t* begin() const {
    return ranks_ == nullptr ? nullptr : ranks_->data();
  }
  const int32_t* end() const { return begin() + size(); }

 private:
  std::shared_ptr<const std::vector<int32_t>> ranks_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_JOINED_RANKS_H_
