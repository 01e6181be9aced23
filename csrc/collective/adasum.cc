#include "csrc/collective/adasum.h"

#include <algorithm>

#include "csrc/base/round.h"
#include "csrc/collective/arguments.h"
#include "csrc/collective/kernels/kernels.h"

namespace keras_ring {
namespace {

// The factors of a and b, from a.b, a.a and b.b.
struct Factors {
  explicit Factors(const double* products)
      : of_a(products[1] == 0 ? 1.0 : 1.0 - products[0] / (2 * products[1])),
        of_b(products[2] == 0 ? 1.0 : 1.0 - products[0] / (2 * products[2])) {}
  const double of_a;
  const double of_b;
};

}  // namespace

// The values that are the same for all rounds, and the slices of one round.
struct Adasum::Round {
  const AllreduceArgs& args;
  const ReductionKernels method;
  const PairKernels& kernels;
  const int rank;
  const int size;
  BlockingCollective& collective;

  int64_t count = 0;

  Range SliceOf(int owner) const {
    const int64_t longest = DivideUp(count, size);
    return {std::min(owner * longest, count),
            std::min((owner + 1) * longest, count)};
  }
};

Status Adasum::Allreduce(const AllreduceArgs& args, int rank, int size,
                         BlockingCollective& collective) {
  KR_RETURN_IF_ERROR(CheckReduction(args).WithContext("allreduce"));
  const ReductionKernels method(args);
  Round round{args, method, FindPairKernels(method.format.dtype),
              rank, size,   collective};
  const int64_t most = round_bytes_ / method.tensor_size;
  for (size_t first = 0; first < args.tensors.size();) {
    size_t end = first;
    round.count = 0;
    do {
      round.count += args.tensors[end++].count;
    } while (end < args.tensors.size() &&
             round.count + args.tensors[end].count <= most);
    KR_RETURN_IF_ERROR(
        Run(round, {args.tensors.begin() + first, args.tensors.begin() + end}));
    first = end;
  }
  return OkStatus();
}

Status Adasum::Run(const Round& round, const std::vector<TensorSpan>& tensors) {
  if (round.count == 0) return OkStatus();
  const ReductionKernels& method = round.method;
  const size_t value_size = method.format.value_size;
  spans_.Assign(tensors, method.tensor_size, value_size);
  KR_ASSIGN_OR_RETURN(void* row, row_.Reserve(round.count * value_size));
  const Range all{0, round.count};
  spans_.ForEach(all, [&](const SpanPiece& piece) {
    method.Pack(static_cast<char*>(row) + piece.at, piece.input, piece.count);
  });

  const int64_t own = round.SliceOf(round.rank).count();
  KR_ASSIGN_OR_RETURN(void* arrived,
                      arrived_.Reserve(round.size * own * value_size));
  AlltoallArgs exchange;
  exchange.tag = round.args.tag;
  exchange.input = row;
  exchange.output = arrived;
  exchange.size = round.size;
  exchange.bytes = [&round, value_size](int, int to) -> size_t {
    return round.SliceOf(to).count() * value_size;
  };
  AllgatherArgs gather;
  gather.tag = round.args.tag;
  for (int rank = 0; rank < round.size; ++rank) {
    gather.bytes_per_rank.push_back(round.SliceOf(rank).count() * value_size);
  }
  KR_RETURN_IF_ERROR(round.collective.Alltoall(exchange));

  const size_t wide_size = method.format.element_size;
  void* wide = arrived;
  if (method.format.converts) {
    KR_ASSIGN_OR_RETURN(wide, widened_.Reserve(round.size * own * wide_size));
    method.Widen(wide, arrived, round.size * own);
  }
  slices_.clear();
  for (int rank = 0; rank < round.size; ++rank) {
    slices_.push_back(static_cast<char*>(wide) + rank * own * wide_size);
  }
  KR_RETURN_IF_ERROR(Combine(round));
  method.FinishSums(wide, arrived, own);

  gather.input = arrived;
  gather.output = row;
  KR_RETURN_IF_ERROR(round.collective.Allgather(gather));
  spans_.ForEach(all, [&](const SpanPiece& piece) {
    method.Unpack(piece.output, static_cast<const char*>(row) + piece.at,
                  piece.count);
  });
  return OkStatus();
}

Status Adasum::Combine(const Round& round) {
  const Range own = round.SliceOf(round.rank);
  const size_t wide_size = round.method.format.element_size;
  std::vector<double> products;
  while (slices_.size() > 1) {
    KR_RETURN_IF_ERROR(MultiplyPairs(round, products));
    std::vector<char*> combined;
    for (size_t i = 0; i < slices_.size(); i += 2) {
      combined.push_back(slices_[i]);
      if (i + 1 == slices_.size()) break;
      int64_t at = 0;
      spans_.ForEach(own, [&](const SpanPiece& piece) {
        const size_t row = i / 2 * spans_.num_tensors() + piece.tensor;
        const Factors factors(&products[3 * row]);
        round.kernels.combine(slices_[i] + at * wide_size,
                              slices_[i + 1] + at * wide_size, piece.count,
                              factors.of_a, factors.of_b);
        at += piece.count;
      });
    }
    slices_ = std::move(combined);
  }
  return OkStatus();
}

Status Adasum::MultiplyPairs(const Round& round,
                             std::vector<double>& products) {
  const Range own = round.SliceOf(round.rank);
  const size_t wide_size = round.method.format.element_size;
  const size_t pairs = slices_.size() / 2;
  products.assign(3 * pairs * spans_.num_tensors(), 0.0);
  for (size_t pair = 0; pair < pairs; ++pair) {
    int64_t at = 0;
    spans_.ForEach(own, [&](const SpanPiece& piece) {
      const size_t row = pair * spans_.num_tensors() + piece.tensor;
      round.kernels.multiply(slices_[2 * pair] + at * wide_size,
                             slices_[2 * pair + 1] + at * wide_size,
                             piece.count, &products[3 * row]);
      at += piece.count;
    });
  }
  AllreduceArgs sum;
  sum.tag = round.args.tag;
  sum.dtype = DType::kFloat64;
  sum.op = ReduceOp::kSum;
  sum.tensors.push_back({products.data(), products.data(),
                         static_cast<int64_t>(products.size())});
  return round.collective.Allreduce(sum);
}

}  // namespace keras_ring
