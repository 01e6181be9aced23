// How long what ranks tell each other becomes, before it is sent.
#ifndef KERAS_RING_CONTROL_MESSAGE_LENGTH_H_
#define KERAS_RING_CONTROL_MESSAGE_LENGTH_H_

#include <cstddef>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/control/request.h"

namespace keras_ring {

// The longest message of the control plane: a job in which a longer one is sent
// breaks. Holds the description of a large model's gradients. Of the splits of
// an alltoall, which differ from rank to rank and are the square of the number
// of ranks, it holds those of 4,096 ranks below 2^21 each.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;

// What these take in a message, or a little more.
size_t EncodedBytes(const Response& agreed);
size_t EncodedBytes(const std::vector<RequestVariant>& variants);

// kInvalidArgument if `agreed` is too long for a message of which it may have
// `limit` bytes.
Status CheckLength(const Response& agreed, size_t limit);

// Puts a mark instead of the splits: what is too long to be told cannot be
// decided on either, and Agree finds the mark and says so.
void LeaveSplitsOut(std::vector<RequestVariant>& variants);
bool AreLeftOut(const std::vector<int64_t>& splits);
// The error of such a request.
Status TooLongError(const Request& request);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_MESSAGE_LENGTH_H_
