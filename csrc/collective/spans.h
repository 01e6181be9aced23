// Spans: the tensors of a bucket as one row of elements.
#ifndef KERAS_RING_COLLECTIVE_SPANS_H_
#define KERAS_RING_COLLECTIVE_SPANS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/collective/collective.h"

namespace keras_ring {

// Returns `data` plus `bytes`. Null, for an empty tensor or an unwanted one,
// stays null: adding to it would be undefined.
template <typename Char>
Char* Advance(Char* data, size_t bytes) {
  return data == nullptr ? nullptr : data + bytes;
}

// Elements [begin, end) of the row.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};

// Returns a range within `range` even if the intersection is empty.
inline Range Intersection(const Range& range, const Range& other) {
  const int64_t begin = std::clamp(other.begin, range.begin, range.end);
  return {begin, std::clamp(other.end, begin, range.end)};
}

// A part of one tensor. Distances are in bytes.
struct SpanPiece {
  size_t tensor = 0;
  size_t offset = 0;  // in the tensor
  size_t at = 0;      // in the range it was asked for, as it travels
  int64_t count = 0;  // elements
  size_t bytes = 0;
  const char* input = nullptr;
  char* output = nullptr;
};

// Reused from one bucket to the next, so that it allocates only while buckets
// grow.
class Spans {
 public:
  void Assign(const std::vector<TensorSpan>& tensors, size_t element_size) {
    Assign(tensors, element_size, element_size);
  }
  // For elements that have another size on the wire.
  void Assign(const std::vector<TensorSpan>& tensors, size_t element_size,
              size_t wire_size) {
    tensors_ = tensors.data();
    element_size_ = element_size;
    wire_size_ = wire_size;
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
  size_t wire_size() const { return wire_size_; }

  size_t num_tensors() const { return begins_.size() - 1; }
  const TensorSpan& tensor(size_t t) const { return tensors_[t]; }

  // Calls f(piece) for each part of a tensor that lies in `range`, in order.
  template <typename Function>
  void ForEach(const Range& range, Function f) const {
    if (range.begin >= range.end) return;
    // The last tensor that begins at or before the range.
    size_t t = std::upper_bound(begins_.begin(), begins_.end(), range.begin) -
               begins_.begin() - 1;
    for (int64_t at = range.begin; at < range.end; ++t) {
      SpanPiece piece;
      piece.count = std::min(range.end, begins_[t + 1]) - at;
      if (piece.count <= 0) continue;
      piece.tensor = t;
      piece.offset = (at - begins_[t]) * element_size_;
      piece.at = (at - range.begin) * wire_size_;
      piece.bytes = piece.count * element_size_;
      piece.input =
          Advance(static_cast<const char*>(tensors_[t].input), piece.offset);
      piece.output =
          Advance(static_cast<char*>(tensors_[t].output), piece.offset);
      f(piece);
      at += piece.count;
    }
  }

 private:
  const TensorSpan* tensors_ = nullptr;
  size_t element_size_ = 1;
  size_t wire_size_ = 1;
  std::vector<int64_t> begins_;  // and the end
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_SPANS_H_
