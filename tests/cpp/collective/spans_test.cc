#include "csrc/collective/spans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace keras_ring {
namespace {

// Tensors that lie in one array, a gap behind each, so that one can tell from
// an address which element it is.
class Row {
 public:
  Row(std::vector<int64_t> counts, size_t element_size)
      : element_size_(element_size) {
    int64_t total = 0;
    for (int64_t count : counts) total += count + kGap;
    input_.assign(total * element_size, 'i');
    output_.assign(total * element_size, 'o');
    size_t begin = 0;
    for (int64_t count : counts) {
      tensors_.push_back(TensorSpan{&input_[begin], &output_[begin], count});
      for (int64_t i = 0; i < count; ++i) {
        offsets_.push_back(begin + i * element_size);
      }
      begin += (count + kGap) * element_size;
    }
  }

  int64_t count() const { return static_cast<int64_t>(offsets_.size()); }
  const std::vector<TensorSpan>& tensors() const { return tensors_; }

  // Checks each element of `range` against where it lies.
  void Check(const Spans& spans, const Range& range) const {
    int64_t next = range.begin;
    spans.ForEach(range, [&](const SpanPiece& piece) {
      ASSERT_GT(piece.count, 0);
      ASSERT_EQ(piece.bytes, piece.count * element_size_);
      ASSERT_EQ(piece.at, (next - range.begin) * element_size_);
      const TensorSpan& tensor = spans.tensor(piece.tensor);
      ASSERT_EQ(static_cast<const char*>(tensor.input) + piece.offset,
                piece.input);
      for (int64_t i = 0; i < piece.count; ++i, ++next) {
        ASSERT_LT(next, range.end);
        ASSERT_EQ(piece.input + i * element_size_,
                  input_.data() + offsets_[next]);
        ASSERT_EQ(piece.output + i * element_size_,
                  output_.data() + offsets_[next]);
      }
      // A piece ends where its tensor does: the next element is elsewhere.
      if (next < range.end) {
        ASSERT_NE(offsets_[next], offsets_[next - 1] + element_size_);
      }
    });
    ASSERT_EQ(next, std::max(range.begin, range.end));
  }

 private:
  static constexpr int64_t kGap = 3;

  const size_t element_size_;
  std::string input_, output_;
  std::vector<TensorSpan> tensors_;
  std::vector<size_t> offsets_;  // of each element of the row
};

TEST(Spans, PlacesCanHaveAnotherSize) {
  const std::vector<double> values(5);
  const std::vector<TensorSpan> tensors = {{&values[0], nullptr, 2},
                                           {&values[2], nullptr, 3}};
  Spans spans;
  spans.Assign(tensors, sizeof(double), 2);
  EXPECT_EQ(spans.element_size(), sizeof(double));
  EXPECT_EQ(spans.wire_size(), 2u);
  std::vector<size_t> places, offsets;
  spans.ForEach({1, 4}, [&](const SpanPiece& piece) {
    places.push_back(piece.at);
    offsets.push_back(piece.offset);
  });
  EXPECT_EQ(places, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(offsets, (std::vector<size_t>{sizeof(double), 0}));
}

TEST(Spans, EveryRangeOfSmallRows) {
  const std::vector<std::vector<int64_t>> rows = {
      {},        {0},          {1},       {0, 0, 0},         {5},
      {1, 1, 1}, {0, 2, 0, 1}, {3, 0, 0}, {0, 0, 4, 0, 2, 0}};
  for (const auto& counts : rows) {
    for (size_t element_size : {1, 2, 4, 8}) {
      const Row row(counts, element_size);
      Spans spans;
      spans.Assign(row.tensors(), element_size);
      ASSERT_EQ(spans.count(), row.count());
      ASSERT_EQ(spans.element_size(), element_size);
      for (int64_t begin = 0; begin <= row.count(); ++begin) {
        for (int64_t end = begin; end <= row.count(); ++end) {
          row.Check(spans, {begin, end});
        }
      }
      if (HasFatalFailure()) return;
    }
  }
}

// One object for many rows, as it is used.
TEST(Spans, RandomRows) {
  Spans spans;
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> counts(random() % 20);
    for (int64_t& count : counts) {
      count = random() % 3 == 0 ? 0 : random() % 40;
    }
    const Row row(counts, 4);
    spans.Assign(row.tensors(), 4);
    for (int i = 0; i < 20; ++i) {
      const int64_t begin = random() % (row.count() + 1);
      const int64_t end = begin + random() % (row.count() - begin + 1);
      row.Check(spans, {begin, end});
    }
    if (HasFatalFailure()) return;
  }
}

TEST(Spans, NothingOfAnEmptyOrBackwardRange) {
  const Row row({4, 4}, 4);
  Spans spans;
  spans.Assign(row.tensors(), 4);
  for (const Range& range : {Range{8, 8}, Range{5, 3}, Range{9, 9}}) {
    spans.ForEach(range, [](const SpanPiece&) { FAIL(); });
  }
}

}  // namespace
}  // namespace keras_ring
