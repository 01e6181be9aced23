#include "csrc/collective/net/exchange.h"

#include <algorithm>

#include "csrc/base/round.h"

namespace keras_ring {
namespace {

using Block = ExchangeBlock;

// Parts begin at multiples of this, in elements, so that no two ranks fold
// values of one cache line.
constexpr int64_t kPartAlignment = 64;

int64_t NumSteps(const Range& part, int64_t max_step) {
  return DivideUp(part.count(), max_step);
}

Range StepOf(const Range& part, int64_t step, int64_t max_step) {
  const int64_t begin = std::min(part.begin + step * max_step, part.end);
  return {begin, std::min(begin + max_step, part.end)};
}

int64_t MaxCount(const std::vector<Range>& ranges) {
  int64_t most = 0;
  for (const Range& range : ranges) most = std::max(most, range.count());
  return most;
}

// Part `index` of `size` of a range.
Range PartOf(const Range& range, int index, int size) {
  const int64_t lines = DivideUp(range.count(), kPartAlignment);
  const int64_t part = DivideUp(lines, size) * kPartAlignment;
  return {std::min(range.begin + index * part, range.end),
          std::min(range.begin + (index + 1) * part, range.end)};
}

// The blocks of a stream: values of values_of(step), and results of
// results_of(step), unless there are none.
template <typename ValuesOf, typename ResultsOf>
std::vector<Block> Interleave(int64_t steps, int64_t lag, bool has_results,
                              const ValuesOf& values_of,
                              const ResultsOf& results_of) {
  std::vector<Block> blocks;
  for (int64_t step = 0; step < steps + lag; ++step) {
    if (step < steps) {
      blocks.push_back({Block::Kind::kValues, step, values_of(step)});
    }
    const int64_t folded = step - lag + 1;
    if (has_results && folded >= 0 && folded < steps) {
      blocks.push_back({Block::Kind::kResult, folded, results_of(folded)});
    }
  }
  return blocks;
}

ExchangeSchedule Plan(const ExchangeShape& shape, int64_t steps,
                      const ExchangeRanges& ranges) {
  ExchangeSchedule schedule;
  schedule.rank = shape.rank;
  schedule.size = shape.size;
  schedule.lag = shape.lag;
  schedule.has_results = ranges.results != nullptr;
  for (int64_t step = 0; step < steps; ++step) {
    schedule.folds.push_back(ranges.folds(shape.rank, step));
  }
  const auto stream = [&](int from, int to) {
    return Interleave(
        steps, shape.lag, schedule.has_results,
        [&](int64_t step) { return ranges.values(from, to, step); },
        [&](int64_t step) { return ranges.results(from, to, step); });
  };
  for (int k = 1; k < shape.size; ++k) {
    const int peer = (shape.rank + k) % shape.size;
    schedule.peers.push_back(peer);
    schedule.sends.push_back(stream(shape.rank, peer));
    schedule.receives.push_back(stream(peer, shape.rank));
  }
  return schedule;
}

// All have values of all, and want all results, if there are any.
template <typename FoldOf>
ExchangeSchedule PlanAll(const ExchangeShape& shape, int64_t steps,
                         bool has_results, const FoldOf& fold_of) {
  ExchangeRanges ranges;
  ranges.folds = fold_of;
  ranges.values = [&](int /*from*/, int to, int64_t step) {
    return fold_of(to, step);
  };
  if (has_results) {
    ranges.results = [&](int from, int /*to*/, int64_t step) {
      return fold_of(from, step);
    };
  }
  return Plan(shape, steps, ranges);
}

ExchangeSchedule PlanParts(const ExchangeShape& shape,
                           const std::vector<Range>& parts, bool has_results) {
  int64_t steps = 0;
  for (const Range& part : parts) {
    steps = std::max(steps, NumSteps(part, shape.max_step));
  }
  return PlanAll(shape, steps, has_results, [&](int rank, int64_t step) {
    return StepOf(parts[rank], step, shape.max_step);
  });
}

}  // namespace

// A block that a rank folds is sent by the others; a block that others fold is
// sent to them.
int64_t ExchangeSchedule::max_block() const {
  int64_t most = MaxCount(folds);
  for (const std::vector<Block>& blocks : sends) {
    for (const Block& block : blocks) {
      most = std::max(most, block.range.count());
    }
  }
  return most;
}

int64_t ExchangeSchedule::max_cover() const { return MaxCount(covers); }

ExchangeSchedule PlanOneShot(const ExchangeShape& shape, int64_t count) {
  std::vector<Range> chunks;
  const Range row{0, count};
  for (int64_t step = 0; step < NumSteps(row, shape.max_step); ++step) {
    chunks.push_back(StepOf(row, step, shape.max_step));
  }
  return PlanChunksOneShot(shape, chunks);
}

ExchangeSchedule PlanTwoShots(const ExchangeShape& shape, int64_t count) {
  std::vector<Range> parts;
  for (int rank = 0; rank < shape.size; ++rank) {
    parts.push_back(PartOf({0, count}, rank, shape.size));
  }
  return PlanParts(shape, parts, /*has_results=*/true);
}

ExchangeSchedule PlanChunksOneShot(const ExchangeShape& shape,
                                   const std::vector<Range>& chunks) {
  ExchangeSchedule schedule =
      PlanAll(shape, static_cast<int64_t>(chunks.size()), /*has_results=*/false,
              [&](int /*rank*/, int64_t step) { return chunks[step]; });
  schedule.one_shot = true;
  schedule.covers = chunks;
  return schedule;
}

ExchangeSchedule PlanChunksTwoShots(const ExchangeShape& shape,
                                    const std::vector<Range>& chunks,
                                    int owners) {
  ExchangeSchedule schedule =
      PlanAll(shape, static_cast<int64_t>(chunks.size()), /*has_results=*/true,
              [&](int rank, int64_t step) {
                return OwnedPart(chunks[step], rank, owners);
              });
  schedule.covers = chunks;
  return schedule;
}

ExchangeSchedule PlanChunks(const ExchangeShape& shape,
                            const std::vector<Range>& chunks,
                            const ExchangeRanges& ranges) {
  ExchangeSchedule schedule =
      Plan(shape, static_cast<int64_t>(chunks.size()), ranges);
  schedule.covers = chunks;
  return schedule;
}

Range OwnedPart(const Range& chunk, int rank, int owners) {
  return PartOf(chunk, std::min(rank, owners), owners);
}

ExchangeSchedule PlanReduceScatter(const ExchangeShape& shape,
                                   const std::vector<Range>& parts) {
  return PlanParts(shape, parts, /*has_results=*/false);
}

}  // namespace keras_ring
