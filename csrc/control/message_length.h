// The encoded length of control messages, estimated before they are sent.
#ifndef KERAS_RING_CONTROL_MESSAGE_LENGTH_H_
#define KERAS_RING_CONTROL_MESSAGE_LENGTH_H_

#include <cstddef>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/control/request.h"

namespace keras_ring {

// The longest message of the control plane: sending a longer one breaks the
// job. It has room for the description of a large model's gradients. The splits
// of an alltoall differ from rank to rank and are the square of the number of
// ranks: there is room for those of 4,096 ranks, below 2^21 each.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;

// Return the length of these in a message, or a little more.
size_t EncodedBytes(const Response& agreed);
size_t EncodedBytes(const std::vector<RequestVariant>& variants);

// kInvalidArgument if `agreed` takes more than `limit` bytes of a message.
Status CheckLength(const Response& agreed, size_t limit);

// Replaces the splits by a mark: a request that is too long to be sent cannot
// be decided on either. Agree finds the mark and returns the error.
void LeaveSplitsOut(std::vector<RequestVariant>& variants);
bool AreLeftOut(const std::vector<int64_t>& splits);
// The error of such a request.
Status TooLongError(const Request& request);

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_MESSAGE_LENGTH_H_
