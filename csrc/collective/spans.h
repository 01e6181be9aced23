// Spans: the tensors of a bucket as one row of elements.
#ifndef KERAS_RING_COLLECTIVE_SPANS_H_
#define KERAS_RING_COLLECTIVE_SPANS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/collective/collective.h"

namespace keras_ring {

// Elements [begin, end) of the row.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

// Kept from one bucket to the next, so that it allocates only while they grow.
class Spans {
 public:
  void Assign(const std::vector<TensorSpan>& tensors, size_t element_size) {
    tensors_ = tensors.data();
    element_size_ = element_size;
    begins_.clear();
    int64_t begin = 0;
    for (const TensorSpan& tensor : tensors) {
      begins_.push_back(begin);
      begin += tensor.count;
    }
    begins_.push_back(begin);
  }

  int64_t count() const { return begins_.back(); }
  size_t element_size() const { return element_size_; }

  // Calls piece(input, output, at, count) for each part of a tensor that lies
  // in `range`, in order; `at` is its distance from the beginning of the range.
  // All in bytes but `count`.
  template <typename Piece>
  void ForEach(const Range& range, Piece piece) const {
    if (range.begin >= range.end) return;
    // The last tensor that begins at or before the range.
    size_t t = std::upper_bound(begins_.begin(), begins_.end(), range.begin) -
               begins_.begin() - 1;
    for (int64_t at = range.begin; at < range.end; ++t) {
      const int64_t skip = at - begins_[t];
      const int64_t count = std::min(range.end, begins_[t + 1]) - at;
      if (count <= 0) continue;
      piece(static_cast<const char*>(tensors_[t].input) + skip * element_size_,
            static_cast<char*>(tensors_[t].output) + skip * element_size_,
            (at - range.begin) * element_size_, count);
      at += count;
    }
  }

 private:
  const TensorSpan* tensors_ = nullptr;
  size_t element_size_ = 1;
  std::vector<int64_t> begins_;  // and the end
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SPANS_H_
