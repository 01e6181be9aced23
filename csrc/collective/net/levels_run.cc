#include "csrc/collective/net/levels_run.h"

namespace keras_ring {

LevelsRun::LevelsRun(const std::vector<Group>& groups,
                     const std::vector<int>& ranks,
                     const std::vector<Range>& chunks, const LevelsShape& shape,
                     LowerLevel& below, const FoldMethod& method,
                     const Spans& row, std::deque<ScratchBuffer>& scratch,
                     const Meter& meter) {
  std::vector<Range> covers = chunks;
  LowerLevel* level_below = &below;
  for (size_t level = 0; level_below != nullptr; ++level) {
    const Group& group = groups[level];
    const int size = static_cast<int>(group.ranks.size());
    const ExchangeShape exchange{group.place, size, /*max_step=*/0, shape.lag};
    const bool one_shot = group.is_top && (size == 2 || shape.is_small);
    const int owners = shape.is_small && !group.is_top ? 1 : group.owners;
    schedules_.push_back(one_shot
                             ? PlanChunksOneShot(exchange, covers)
                             : PlanChunksTwoShots(exchange, covers, owners));
    covers = schedules_.back().folds;
    ExchangeBinding binding{method, row};
    for (int member : group.ranks) binding.ranks.push_back(ranks[member]);
    binding.below = level_below;
    binding.level = static_cast<int>(level) + 1;
    binding.is_below = !group.is_top && group.place < owners;
    runs_.emplace_back(schedules_.back(), binding, scratch[level], meter);
    level_below = binding.is_below ? &runs_.back() : nullptr;
  }
}

Status LevelsRun::AddTo(SendReceivePlan& plan) {
  for (ExchangeRun& run : runs_) KR_RETURN_IF_ERROR(run.AddTo(plan));
  return OkStatus();
}

bool LevelsRun::Advance(SendReceivePlan& plan) {
  bool any = false;
  bool changed = true;
  while (changed) {
    changed = false;
    for (ExchangeRun& run : runs_) changed = run.Advance(plan) || changed;
    any = any || changed;
  }
  return any;
}

}  // namespace keras_ring
