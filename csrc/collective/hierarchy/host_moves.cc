#include "csrc/collective/hierarchy/host_moves.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace keras_ring {
namespace {

Reduction OfBytes() {
  Reduction reduction;
  reduction.dtype = DType::kUint8;
  return reduction;
}

// The member that stands for `host`, or -1.
int MemberFor(const Group& group, int host) {
  const auto after =
      std::upper_bound(group.begins.begin(), group.begins.end(), host);
  if (after == group.begins.begin() || after == group.begins.end()) return -1;
  return static_cast<int>(after - group.begins.begin()) - 1;
}

}  // namespace

HostMoves::HostMoves(const Placement& placement, int rank,
                     const std::vector<Group>& levels, const Spans& row,
                     std::vector<int> sources)
    : method_(OfBytes()),
      placement_(placement),
      host_(placement.host(rank)),
      levels_(levels),
      row_(row),
      sources_(std::move(sources)) {}

void HostMoves::Reduce(const SpanPiece& piece, const void* const* values,
                       int /*num_values*/, char* sums) {
  if (HostOf(piece) != host_) return;
  const int local_rank = placement_.local_rank(sources_[piece.tensor]);
  std::memcpy(sums, values[local_rank], piece.bytes);
}

void HostMoves::Add(int level, const Range& range, const void* const* sums,
                    int /*num_sums*/, char* to) {
  row_.ForEach(range, [&](const SpanPiece& piece) {
    const int member = MemberFor(levels_[level - 1], HostOf(piece));
    if (member < 0) return;
    std::memcpy(to + piece.at,
                static_cast<const char*>(sums[member]) + piece.at, piece.bytes);
  });
}

void HostMoves::Fold(const SpanPiece& piece, const void* const* sums,
                     int /*num_sums*/, char* copy) {
  const void* const from = sums[MemberFor(levels_.back(), HostOf(piece))];
  if (copy != nullptr) std::memcpy(copy, from, piece.bytes);
  if (piece.output != nullptr) std::memcpy(piece.output, from, piece.bytes);
}

}  // namespace keras_ring
