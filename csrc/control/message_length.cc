#include "csrc/control/message_length.h"

#include <cstdint>
#include <string>

#include "csrc/base/wire.h"

namespace keras_ring {
namespace {

// Less than any split that a program could mean.
constexpr int64_t kLeftOut = INT64_MIN;

size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

// Values that may be negative need a bit more.
size_t ListBytes(const std::vector<int64_t>& values) {
  size_t bytes = VarintBytes(values.size());
  for (int64_t value : values) {
    const auto magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
    bytes += VarintBytes(magnitude << 1);
  }
  return bytes;
}

size_t BytesOf(const Request& request) {
  WireWriter writer;
  request.Encode(writer);
  return writer.bytes().size();
}

size_t BytesOf(const std::vector<int64_t>& rows,
               const std::vector<std::vector<int64_t>>& splits) {
  size_t bytes = ListBytes(rows);
  for (const std::vector<int64_t>& each : splits) bytes += ListBytes(each);
  return bytes;
}

}  // namespace

size_t EncodedBytes(const Response& agreed) {
  return BytesOf(agreed.request) + BytesOf(agreed.rows, agreed.splits);
}

size_t EncodedBytes(const std::vector<RequestVariant>& variants) {
  // A single rank takes the gap to the one before and a length of 1.
  constexpr size_t kBytesOfRank = 6;
  size_t bytes = VarintBytes(variants.size());
  for (const RequestVariant& variant : variants) {
    bytes += BytesOf(variant.request) + BytesOf(variant.rows, variant.splits) +
             kBytesOfRank * (variant.ranks.size() + 1);
  }
  return bytes;
}

Status CheckLength(const Response& agreed, size_t limit) {
  return EncodedBytes(agreed) <= limit ? OkStatus()
                                       : TooLongError(agreed.request);
}

void LeaveSplitsOut(std::vector<RequestVariant>& variants) {
  for (RequestVariant& variant : variants) {
    for (std::vector<int64_t>& splits : variant.splits) splits = {kLeftOut};
  }
}

bool AreLeftOut(const std::vector<int64_t>& splits) {
  return splits.size() == 1 && splits.front() == kLeftOut;
}

Status TooLongError(const Request& request) {
  return InvalidArgumentError(
      request.Label() +
      ": the numbers of rows that the ranks bring, and how they split them, "
      "are "
      "longer than what ranks can tell each other at once (" +
      std::to_string(kMaxMessageBytes >> 20) +
      " MiB). Every rank hears of the splits of all ranks: give none, so that "
      "each rank gets as many rows, or fewer rows at a time, or use process "
      "sets of fewer ranks");
}

}  // namespace keras_ring
