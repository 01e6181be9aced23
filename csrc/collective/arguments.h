// What every Collective checks before it touches memory.
#ifndef KERAS_RING_COLLECTIVE_ARGUMENTS_H_
#define KERAS_RING_COLLECTIVE_ARGUMENTS_H_

#include <string>

#include "csrc/base/status.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/pack.h"

namespace keras_ring {

// Of AllreduceArgs and ReducescatterArgs.
template <typename Args>
Status CheckReduction(const Args& args) {
  if (!IsReducible(args.dtype)) {
    return InvalidArgumentError(std::string("cannot reduce ") +
                                DTypeName(args.dtype) + " tensors");
  }
  if (args.divisor < 1) {
    return InvalidArgumentError("the divisor must be at least 1, not " +
                                std::to_string(args.divisor));
  }
  if (IsInteger(args.dtype) &&
      (args.prescale != 1.0 || args.postscale != 1.0)) {
    return InvalidArgumentError(std::string("cannot scale ") +
                                DTypeName(args.dtype) + " tensors");
  }
  return OkStatus();
}

template <typename Args>
Finish FinishOf(const Args& args) {
  return Finish{args.op == ReduceOp::kAverage ? args.divisor : 1,
                args.postscale};
}

inline Status CheckRoot(const BroadcastArgs& args, int size) {
  if (args.root >= 0 && args.root < size) return OkStatus();
  return InvalidArgumentError("root " + std::to_string(args.root) +
                              " is not a rank of a group of " +
                              std::to_string(size));
}

// `count` values were given where `expected` belong.
inline Status CheckSizes(size_t count, size_t expected) {
  if (count == expected) return OkStatus();
  return InvalidArgumentError("sizes for " + std::to_string(count) +
                              " ranks were given to a group of " +
                              std::to_string(expected));
}

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_ARGUMENTS_H_
