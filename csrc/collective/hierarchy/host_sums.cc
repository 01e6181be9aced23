#include "csrc/collective/hierarchy/host_sums.h"

#include <cstring>
#include <numeric>

#include "csrc/collective/arguments.h"

namespace keras_ring {
namespace {

bool IsSum(ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAverage;
}

// Returns the divisor for sums of at most `most` values.
double Scale(const Reduction& reduction, int most) {
  if (reduction.compression != Compression::kFloat16 || !IsSum(reduction.op) ||
      FindCodec(reduction.dtype, reduction.wire_dtype()) == nullptr) {
    return 1.0;
  }
  double scale = 1.0;
  while (scale < most) scale *= 2.0;
  return scale;
}

// Returns the reduction that remains for the sums of the last level.
Reduction Across(Reduction reduction, const std::vector<int>& max_sums) {
  const double postscale =
      std::accumulate(max_sums.begin(), max_sums.end(), reduction.postscale,
                      [&reduction](double product, int sums) {
                        return product * Scale(reduction, sums);
                      });
  reduction.prescale = 1.0;
  reduction.postscale = postscale;
  return reduction;
}

ReduceOp LocalOp(ReduceOp op) {
  return op == ReduceOp::kAverage ? ReduceOp::kSum : op;
}

}  // namespace

HostSums::HostSums(const Reduction& reduction, const std::vector<int>& max_sums)
    : method_(reduction),
      across_(Across(reduction, max_sums)),
      reduce_(FindFoldKernel(reduction.wire_dtype(), LocalOp(reduction.op))),
      size_(DTypeSize(reduction.wire_dtype())) {
  for (int sums : max_sums) {
    Finish finish;
    finish.postscale = 1.0 / Scale(reduction, sums);
    finish_.push_back(finish);
  }
  if (method_.codec != nullptr) return;
  const AccumulatorFormat* format =
      FindWideFormat(reduction.dtype, reduction.op);
  if (!format->converts) return;
  wide_ = format;
  add_wide_ = FindReduceKernel(format->dtype, reduction.op);
  size_ = format->element_size;
}

void HostSums::Reduce(const SpanPiece& piece, const void* const* values,
                      int num_values, char* sums) {
  const int64_t count = piece.count;
  if (wide_ != nullptr) return ReduceWide(values, num_values, count, sums);
  // Encoded values include the factor.
  const double prescale = method_.codec != nullptr ? 1.0 : method_.prescale;
  reduce_({values, num_values, count, prescale, finish_.front(), sums, nullptr,
           /*streams=*/false});
}

void HostSums::Add(int level, const Range& range, const void* const* sums,
                   int num_sums, char* to) {
  const int64_t count = range.count();
  if (wide_ == nullptr) {
    reduce_({sums, num_sums, count, 1.0, finish_[level], to, nullptr,
             /*streams=*/false});
    return;
  }
  std::memcpy(to, sums[0], count * size_);
  for (int i = 1; i < num_sums; ++i) add_wide_(to, sums[i], count);
}

void HostSums::Fold(const SpanPiece& piece, const void* const* sums,
                    int num_sums, char* copy) {
  if (piece.output == nullptr) {
    SpanPiece discarded = piece;
    discarded_.resize(piece.bytes / sizeof(int64_t) + 1);
    discarded.output = reinterpret_cast<char*>(discarded_.data());
    return Fold(discarded, sums, num_sums, copy);
  }
  if (wide_ != nullptr) return FoldWide(piece, sums, num_sums, copy);
  across_.Fold(piece, sums, num_sums, copy, /*streams=*/false);
}

void HostSums::ReduceWide(const void* const* values, int num_values,
                          int64_t count, char* sums) {
  wide_->pack(sums, values[0], count, method_.prescale);
  reduce_scratch_.resize(count);
  for (int i = 1; i < num_values; ++i) {
    wide_->pack(reduce_scratch_.data(), values[i], count, method_.prescale);
    add_wide_(sums, reduce_scratch_.data(), count);
  }
}

void HostSums::FoldWide(const SpanPiece& piece, const void* const* sums,
                        int num_sums, char* copy) {
  fold_scratch_.resize(piece.count);
  std::memcpy(fold_scratch_.data(), sums[0], piece.count * size_);
  for (int i = 1; i < num_sums; ++i) {
    add_wide_(fold_scratch_.data(), sums[i], piece.count);
  }
  wide_->finish(fold_scratch_.data(), piece.count, across_.finish);
  wide_->unpack(piece.output, fold_scratch_.data(), piece.count);
  if (copy != nullptr) std::memcpy(copy, piece.output, piece.bytes);
}

}  // namespace keras_ring
