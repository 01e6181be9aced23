#include "csrc/collective/hierarchy/stage_parts.h"

#include <algorithm>

#include "csrc/base/round.h"
#include "csrc/base/status.h"

namespace keras_ring {
namespace {

constexpr int64_t kCacheLine = 64;  // bytes

}  // namespace

StageParts StageParts::Even(int64_t count, int lanes, size_t wire_size,
                            size_t part_bytes) {
  return Tapered(count, lanes, wire_size, PartSizes{part_bytes, part_bytes});
}

StageParts StageParts::Tapered(int64_t count, int lanes, size_t wire_size,
                               const PartSizes& bytes) {
  const int64_t line = kCacheLine / static_cast<int64_t>(wire_size);
  const int64_t most = static_cast<int64_t>(bytes.most / wire_size);
  int64_t next = static_cast<int64_t>(bytes.ends / wire_size);
  KR_CHECK(next > 0);
  std::vector<int64_t> sizes;  // of a part, by chunk; of those at one end first
  int64_t left = DivideUp(count, lanes);
  for (; next < most && left >= 3 * next; next = std::min(2 * next, most)) {
    sizes.push_back(next);
    left -= 2 * next;
  }
  const size_t num_ends = sizes.size();
  const int64_t between = DivideUp(left, next);
  if (between > 0) {
    sizes.resize(num_ends + between, RoundUp(DivideUp(left, between), line));
  }
  for (size_t i = num_ends; i > 0; --i) sizes.push_back(sizes[i - 1]);
  std::vector<int64_t> begins = {0};
  for (size_t i = 0; begins.back() < count; ++i) {
    for (int lane = 0; lane < lanes; ++lane) {
      begins.push_back(std::min(begins.back() + sizes[i], count));
    }
  }
  return StageParts(lanes, std::move(begins));
}

std::vector<Range> StageParts::PartsOf(int lane) const {
  std::vector<Range> parts;
  for (int64_t chunk = 0; chunk < num_chunks(); ++chunk) {
    parts.push_back(Part(chunk, lane));
  }
  return parts;
}

int64_t StageParts::max_count() const {
  int64_t most = 0;
  for (size_t i = 0; i + 1 < begins_.size(); ++i) {
    most = std::max(most, begins_[i + 1] - begins_[i]);
  }
  return most;
}

}  // namespace keras_ring
