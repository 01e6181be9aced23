#include "csrc/collective/hierarchy/stage_parts.h"

#include <algorithm>

namespace keras_ring {
namespace {

constexpr int64_t kCacheLine = 64;  // bytes

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

StageParts StageParts::Even(int64_t count, int lanes, size_t wire_size,
                            size_t part_bytes) {
  const int64_t line = kCacheLine / static_cast<int64_t>(wire_size);
  const int64_t most = static_cast<int64_t>(part_bytes / wire_size);
  const int64_t chunks = DivideUp(count, lanes * most);
  std::vector<int64_t> begins = {0};
  if (chunks > 0) {
    const int64_t part = DivideUp(DivideUp(count, lanes * chunks), line) * line;
    while (begins.back() < count) {
      for (int lane = 0; lane < lanes; ++lane) {
        begins.push_back(std::min(begins.back() + part, count));
      }
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
