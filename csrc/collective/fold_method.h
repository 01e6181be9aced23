// FoldMethod: how the values of all ranks become a result, on a rank that can
// read all of them.
#ifndef KERAS_RING_COLLECTIVE_FOLD_METHOD_H_
#define KERAS_RING_COLLECTIVE_FOLD_METHOD_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "csrc/collective/arguments.h"
#include "csrc/collective/collective.h"
#include "csrc/collective/kernels/codec.h"
#include "csrc/collective/kernels/kernels.h"
#include "csrc/collective/spans.h"

namespace keras_ring {

struct FoldMethod {
  explicit FoldMethod(const Reduction& reduction)
      : codec(FindCodec(reduction.dtype, reduction.wire_dtype())),
        prescale(reduction.prescale),
        finish(FinishOf(reduction)),
        element_size(DTypeSize(reduction.dtype)),
        wire_size(DTypeSize(reduction.wire_dtype())),
        fold(codec != nullptr ? codec->fold[static_cast<int>(reduction.op)]
                              : FindFoldKernel(reduction.dtype, reduction.op)) {
  }

  // Encodes a tensor's values for the wire.
  void Encode(char* wire, const SpanPiece& piece) const {
    if (codec != nullptr) {
      codec->pack(wire, piece.input, piece.count, prescale);
    } else if (wire != piece.input) {
      std::memcpy(wire, piece.input, piece.bytes);
    }
  }
  // Decodes results received from another rank, if this rank wants them.
  void Decode(const SpanPiece& piece, const char* wire) const {
    if (piece.output == nullptr) return;
    if (codec != nullptr) {
      codec->unpack(piece.output, wire, piece.count);
    } else if (wire != piece.output) {
      std::memcpy(piece.output, wire, piece.bytes);
    }
  }
  // Folds the values of `num_sources` ranks, which have been encoded, or are in
  // the tensors if there is no codec. `copy`: null, or where to put the results
  // in the wire format. See FoldArgs for `streams`.
  void Fold(const SpanPiece& piece, const void* const* sources, int num_sources,
            char* copy, bool streams) const {
    // Encoded values include the factor: it was applied before rounding.
    fold({sources, num_sources, piece.count, codec != nullptr ? 1.0 : prescale,
          finish, piece.output, copy, streams});
  }

  const Codec* codec;  // null if nothing is compressed
  double prescale;
  Finish finish;
  size_t element_size;  // in tensors
  size_t wire_size;     // on the way
  FoldKernel fold;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_FOLD_METHOD_H_
