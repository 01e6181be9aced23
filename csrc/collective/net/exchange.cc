#include "csrc/collective/net/exchange.h"

#include <algorithm>

namespace keras_ring {
namespace {

using Block = ExchangeBlock;

// Parts begin at multiples of this, in elements, so that no two ranks fold
// values of one cache line.
constexpr int64_t kPartAlignment = 64;

int64_t NumSteps(const Range& part, int64_t max_step) {
  return (part.count() + max_step - 1) / max_step;
}

Range StepOf(const Range& part, int64_t step, int64_t max_step) {
  const int64_t begin = std::min(part.begin + step * max_step, part.end);
  return {begin, std::min(begin + max_step, part.end)};
}

// The blocks of a stream: those of `values` (null: none), and those of
// `results`.
std::vector<Block> Interleave(const Range* values, const Range* results,
                              int64_t steps, const ExchangeShape& shape) {
  std::vector<Block> blocks;
  const auto add = [&](Block::Kind kind, const Range* part, int64_t step) {
    if (part == nullptr || step < 0 || step >= steps) return;
    blocks.push_back({kind, step, StepOf(*part, step, shape.max_step)});
  };
  for (int64_t step = 0; step < steps + shape.lag; ++step) {
    add(Block::Kind::kValues, values, step);
    add(Block::Kind::kResult, results, step - shape.lag + 1);
  }
  return blocks;
}

// `parts`: what each rank folds.
ExchangeSchedule Plan(const ExchangeShape& shape,
                      const std::vector<Range>& parts, bool has_results) {
  ExchangeSchedule schedule;
  schedule.rank = shape.rank;
  schedule.size = shape.size;
  schedule.lag = shape.lag;
  schedule.has_results = has_results;
  int64_t steps = 0;
  for (const Range& part : parts) {
    steps = std::max(steps, NumSteps(part, shape.max_step));
  }
  const Range& own = parts[shape.rank];
  for (int64_t step = 0; step < steps; ++step) {
    schedule.folds.push_back(StepOf(own, step, shape.max_step));
  }
  for (int k = 1; k < shape.size; ++k) {
    const int peer = (shape.rank + k) % shape.size;
    const Range& theirs = parts[peer];
    schedule.peers.push_back(peer);
    schedule.sends.push_back(
        Interleave(&theirs, has_results ? &own : nullptr, steps, shape));
    schedule.receives.push_back(
        Interleave(&own, has_results ? &theirs : nullptr, steps, shape));
  }
  return schedule;
}

}  // namespace

int64_t ExchangeSchedule::max_count() const {
  int64_t most = 0;
  const auto look = [&most](const std::vector<Block>& blocks) {
    for (const Block& block : blocks) {
      most = std::max(most, block.range.count());
    }
  };
  for (const Range& range : folds) most = std::max(most, range.count());
  for (const auto& blocks : sends) look(blocks);
  for (const auto& blocks : receives) look(blocks);
  return most;
}

ExchangeSchedule PlanOneShot(const ExchangeShape& shape, int64_t count) {
  ExchangeSchedule schedule =
      Plan(shape, std::vector<Range>(shape.size, Range{0, count}),
           /*has_results=*/false);
  schedule.one_shot = true;
  return schedule;
}

ExchangeSchedule PlanTwoShots(const ExchangeShape& shape, int64_t count) {
  const int64_t lines = (count + kPartAlignment - 1) / kPartAlignment;
  const int64_t part = (lines + shape.size - 1) / shape.size * kPartAlignment;
  std::vector<Range> parts;
  for (int rank = 0; rank < shape.size; ++rank) {
    parts.push_back(
        {std::min(rank * part, count), std::min((rank + 1) * part, count)});
  }
  return Plan(shape, parts, /*has_results=*/true);
}

ExchangeSchedule PlanReduceScatter(const ExchangeShape& shape,
                                   const std::vector<Range>& parts) {
  return Plan(shape, parts, /*has_results=*/false);
}

}  // namespace keras_ring
