#include "csrc/collective/net/rounds.h"

#include <algorithm>
#include <utility>

namespace keras_ring {

std::vector<Round> PlanRounds(const std::vector<TensorSpan>& tensors,
                              const AccumulatorFormat& format,
                              const RoundLimits& limits) {
  const int64_t max_count =
      std::max<int64_t>(1, limits.fusion_buffer_bytes / format.packed_size());
  const int64_t direct_count = limits.direct_bytes / format.element_size;
  std::vector<Round> rounds;
  Round packed;
  auto close_packed = [&] {
    if (packed.pieces.empty()) return;
    packed.direct = packed.pieces.size() == 1 && !format.converts;
    rounds.push_back(std::exchange(packed, Round()));
  };
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = tensors[i].count;
    if (count == 0) continue;
    const bool alone = tensors.size() == 1 || count >= direct_count;
    if (alone && !format.converts) {
      rounds.push_back(Round{{Piece{i, 0, count}}, count, /*direct=*/true});
      continue;
    }
    for (int64_t begin = 0; begin < count;) {
      if (packed.count == max_count) close_packed();
      const int64_t taken = std::min(count - begin, max_count - packed.count);
      packed.pieces.push_back(Piece{i, begin, taken});
      packed.count += taken;
      begin += taken;
    }
  }
  close_packed();
  return rounds;
}

}  // namespace keras_ring
