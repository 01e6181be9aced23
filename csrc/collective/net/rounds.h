// Rounds: how a bucket is divided when it is reduced.
#ifndef KERAS_RING_COLLECTIVE_NET_ROUNDS_H_
#define KERAS_RING_COLLECTIVE_NET_ROUNDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "csrc/collective/collective.h"
#include "csrc/collective/kernels/pack.h"

namespace keras_ring {

// Elements [begin, begin + count) of tensors[tensor].
struct Piece {
  size_t tensor = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

// The pieces that one ring allreduce takes together.
struct Round {
  std::vector<Piece> pieces;
  int64_t count = 0;  // elements, of all pieces
  // Reduced in place: one piece, and nothing to convert. All other rounds are
  // packed into the fusion buffer.
  bool direct = false;
};

struct RoundLimits {
  // Packed rounds hold no more than this (but at least one element).
  size_t fusion_buffer_bytes = 0;
  // A tensor of this size is not worth packing: it fills the wire by itself,
  // and packing would cost two copies.
  size_t direct_bytes = 0;
};

// Divides the tensors into rounds. Depends only on values that are equal on all
// ranks (counts, dtypes), not on addresses: some ranks may have a tensor in
// place and others not.
std::vector<Round> PlanRounds(const std::vector<TensorSpan>& tensors,
                              const AccumulatorFormat& format,
                              const RoundLimits& limits);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_ROUNDS_H_
