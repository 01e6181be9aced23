#include "csrc/collective/net/levels_run.h"

#include <algorithm>

namespace keras_ring {
namespace {

using Kind = Traffic::Kind;

Range Nothing(const Range& range) { return {range.begin, range.begin}; }

// The exchange of one group.
class GroupPlan {
 public:
  GroupPlan(const Group& group, const LevelsShape& shape, int64_t lag,
            const std::vector<Range>& covers)
      : group_(group),
        traffic_(shape.traffic),
        is_small_(shape.is_small),
        covers_(covers),
        size_(static_cast<int>(group.ranks.size())),
        exchange_{group.index, size_, /*max_step=*/0, lag} {}

  // The schedule of the level below the top: its owners take their sums to the
  // level above, and distribute the results that come back.
  int owners() const { return is_small_ ? 1 : group_.owners; }
  ExchangeSchedule BelowTop() const {
    return Plan(
        [this](int member, int64_t step) {
          return OwnedPart(covers_[step], member, owners());
        },
        [this](int, int to, int64_t step, const Range& folded) {
          return To(to, step, folded);
        });
  }

  ExchangeSchedule Top() const {
    const bool in_one_shot = size_ == 2 || is_small_;
    switch (traffic_.kind) {
      case Kind::kAllreduce:
        if (!in_one_shot) return BelowTop();
        return PlanChunksOneShot(exchange_, covers_);
      case Kind::kAllgather:
        return OneShot();
      case Kind::kBroadcast:
        return in_one_shot ? OneShot() : TopBroadcast();
      case Kind::kReducescatter:
        return Plan(
            [this](int member, int64_t step) {
              return To(member, step, covers_[step]);
            },
            nullptr);
    }
    KR_CHECK(false);
    return {};
  }

 private:
  // The part of `range` of which a member has values, or wants results.
  Range From(int member, int64_t step, const Range& range) const {
    switch (traffic_.kind) {
      case Kind::kAllgather:
        return Of(member, step, range);
      case Kind::kBroadcast:
        return HasRoot(member) ? range : Nothing(range);
      default:
        return range;
    }
  }
  Range To(int member, int64_t step, const Range& range) const {
    return traffic_.kind == Kind::kReducescatter ? Of(member, step, range)
                                                 : range;
  }
  Range Of(int member, int64_t step, const Range& range) const {
    return Intersection(range, traffic_.part(step, group_.begins[member],
                                             group_.begins[member + 1]));
  }
  bool HasRoot(int member) const {
    return group_.begins[member] <= traffic_.root &&
           traffic_.root < group_.begins[member + 1];
  }

  // `results`: returns the part of what `from` has folded that `to` gets; or
  // null.
  template <typename Folds, typename Results>
  ExchangeSchedule Plan(const Folds& folds, const Results& results) const {
    ExchangeRanges ranges;
    ranges.folds = folds;
    ranges.values = [&](int from, int to, int64_t step) {
      return From(from, step, folds(to, step));
    };
    if constexpr (!std::is_null_pointer_v<Results>) {
      ranges.results = [&](int from, int to, int64_t step) {
        return results(from, to, step, folds(from, step));
      };
    }
    return PlanChunks(exchange_, covers_, ranges);
  }

  // Each rank gets all values straight from the ranks that have them.
  ExchangeSchedule OneShot() const {
    return Plan([this](int, int64_t step) { return covers_[step]; }, nullptr);
  }

  // The root sends a part to each of the others, which pass it on to the rest.
  // It sends each byte once.
  //
  //   R. A. van de Geijn, "On global combine operations", Journal of Parallel
  //   and Distributed Computing 22, 1994
  ExchangeSchedule TopBroadcast() const {
    int root = 0;
    while (!HasRoot(root)) ++root;
    return Plan(
        [this, root](int member, int64_t step) {
          const Range& chunk = covers_[step];
          if (member == root) return chunk;
          return OwnedPart(chunk, member > root ? member - 1 : member,
                           size_ - 1);
        },
        [root](int from, int to, int64_t, const Range& folded) {
          return from == root || to == root ? Nothing(folded) : folded;
        });
  }

  const Group& group_;
  const Traffic& traffic_;
  const bool is_small_;
  const std::vector<Range>& covers_;
  const int size_;
  const ExchangeShape exchange_;
};

}  // namespace

LevelsRun::LevelsRun(const std::vector<Group>& groups,
                     const std::vector<int>& ranks,
                     const std::vector<Range>& chunks, const LevelsShape& shape,
                     InnerLevel& below, const FoldMethod& method,
                     const Spans& row, std::deque<ScratchBuffer>& scratch,
                     const Meter& meter) {
  std::vector<Range> covers = chunks;
  InnerLevel* level_below = &below;
  int64_t lag = shape.lag;
  for (size_t level = 0; level_below != nullptr; ++level) {
    const Group& group = groups[level];
    const GroupPlan plan(group, shape, lag, covers);
    schedules_.push_back(group.is_top ? plan.Top() : plan.BelowTop());
    ExchangeBinding binding{method, row};
    for (int member : group.ranks) binding.ranks.push_back(ranks[member]);
    binding.below = level_below;
    binding.level = static_cast<int>(level) + 1;
    binding.is_below = !group.is_top && group.index < plan.owners();
    covers = schedules_.back().folds;
    runs_.emplace_back(schedules_.back(), binding, scratch[level], meter);
    level_below = binding.is_below ? &runs_.back() : nullptr;
    lag = (lag + 1) / 2;
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
