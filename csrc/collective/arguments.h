// The checks that every Collective makes before it touches memory.
#ifndef KERAS_RING_COLLECTIVE_ARGUMENTS_H_
#define KERAS_RING_COLLECTIVE_ARGUMENTS_H_

#include <string>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/kernels/pack.h"

namespace keras_ring {

inline Status CheckReduction(const Reduction& reduction) {
  if (!IsReducible(reduction.dtype)) {
    return InvalidArgumentError(std::string("cannot reduce ") +
                                DTypeName(reduction.dtype) + " tensors");
  }
  if (reduction.divisor < 1) {
    return InvalidArgumentError("the divisor must be at least 1, not " +
                                std::to_string(reduction.divisor));
  }
  if (IsInteger(reduction.dtype) &&
      (reduction.prescale != 1.0 || reduction.postscale != 1.0)) {
    return InvalidArgumentError(std::string("cannot scale ") +
                                DTypeName(reduction.dtype) + " tensors");
  }
  if (reduction.op == ReduceOp::kAdasum && !IsFloating(reduction.dtype)) {
    return InvalidArgumentError(std::string("there is no Adasum of ") +
                                DTypeName(reduction.dtype) + " tensors");
  }
  return OkStatus();
}

inline Finish FinishOf(const Reduction& reduction) {
  return Finish{reduction.op == ReduceOp::kAverage ? reduction.divisor : 1,
                reduction.postscale};
}

inline Status CheckRoot(const BroadcastArgs& args, int size) {
  if (args.root >= 0 && args.root < size) return OkStatus();
  return InvalidArgumentError("root " + std::to_string(args.root) +
                              " is not a rank of a group of " +
                              std::to_string(size));
}

// Returns an error if `count` values were given where `expected` are needed.
inline Status CheckSizes(size_t count, size_t expected) {
  if (count == expected) return OkStatus();
  return InvalidArgumentError("sizes for " + std::to_string(count) +
                              " ranks were given to a group of " +
                              std::to_string(expected));
}

inline Status CheckAlltoall(const AlltoallArgs& args, int size) {
  return CheckSizes(args.bytes ? args.size : 0, size);
}

inline Status CheckReducescatter(const ReducescatterArgs& args, int size) {
  if (args.op == ReduceOp::kAdasum) {
    return InvalidArgumentError("a part of an Adasum needs all of the tensor");
  }
  KR_RETURN_IF_ERROR(CheckReduction(args));
  return CheckSizes(args.count_per_rank.size(), size);
}

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_ARGUMENTS_H_
