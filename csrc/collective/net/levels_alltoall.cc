#include "csrc/collective/net/levels_alltoall.h"

#include <utility>

#include "csrc/base/status.h"
#include "csrc/collective/net/level_cut.h"

namespace keras_ring {
namespace {

// A participant on a level. It acts for the ranks of a group of groups below,
// which all have the same position in their groups.
struct Participant {
  int rank = -1;
  std::vector<int> sources;  // whose parcels it sends
  std::vector<int> targets;  // whose parcels it receives
};

void Append(const std::vector<int>& more, std::vector<int>& to) {
  to.insert(to.end(), more.begin(), more.end());
}

void AddParcels(const std::vector<int>& sources,
                const std::vector<int>& targets, AlltoallStep::Move& move) {
  for (int to : targets) {
    for (int from : sources) move.parcels.push_back({from, to});
  }
}

void AddTo(std::vector<AlltoallStep::Move>& moves, AlltoallStep::Move move) {
  if (!move.parcels.empty()) moves.push_back(std::move(move));
}

// A level, as the participant at `index` sees it.
class Level {
 public:
  Level(std::vector<Participant> all, int side, int index)
      : all_(std::move(all)),
        cut_(static_cast<int>(all_.size()), side),
        group_(cut_.GroupOf(index)),
        index_(index - cut_.begin(group_)) {}

  bool is_top() const { return cut_.num_groups() == 1; }
  bool owns() const { return index_ < cut_.owners(); }
  int group() const { return group_; }

  // Within the group: parcels for its members go to them, and parcels that
  // leave the group go to the members that send them on.
  AlltoallStep Gather() const {
    AlltoallStep step;
    for (int i = 1; i < group_size(); ++i) {
      const int to = (index_ + i) % group_size();
      const int from = (index_ + group_size() - i) % group_size();
      AddTo(step.sends, MoveBetween(index_, to, member(to).rank));
      AddTo(step.receives, MoveBetween(from, index_, member(from).rank));
    }
    return step;
  }

  // Sends the parcels for members that no participant above represents, from
  // the owners that received them.
  AlltoallStep Deliver() const {
    AlltoallStep step;
    for (int extra = cut_.owners(); extra < group_size(); ++extra) {
      const int owner = extra % cut_.owners();
      AlltoallStep::Move move;
      for (int x = 0; x < static_cast<int>(all_.size()); ++x) {
        if (cut_.GroupOf(x) == group_) continue;
        AddParcels(all_[x].sources, member(extra).targets, move);
      }
      if (index_ == owner) {
        move.peer = member(extra).rank;
        AddTo(step.sends, std::move(move));
      } else if (index_ == extra) {
        move.peer = member(owner).rank;
        AddTo(step.receives, std::move(move));
      }
    }
    return step;
  }

  // The participants with this one's position, one for each group.
  std::vector<Participant> Above() const {
    std::vector<Participant> above(cut_.num_groups());
    for (int x = 0; x < static_cast<int>(all_.size()); ++x) {
      const int group = cut_.GroupOf(x);
      const int index = x - cut_.begin(group);
      Participant& one = above[group];
      if (index == index_) one.rank = all_[x].rank;
      Append(all_[x].sources, one.sources);
      if (index % cut_.owners() == index_) Append(all_[x].targets, one.targets);
    }
    return above;
  }

 private:
  int group_size() const { return cut_.begin(group_ + 1) - cut_.begin(group_); }
  const Participant& member(int index) const {
    return all_[cut_.begin(group_) + index];
  }
  // Returns the member of this group that takes the parcels for participant
  // `x`.
  int Taker(int x) const {
    const int group = cut_.GroupOf(x);
    const int index = x - cut_.begin(group);
    return group == group_ ? index : index % cut_.owners();
  }
  AlltoallStep::Move MoveBetween(int from, int to, int peer) const {
    AlltoallStep::Move move;
    move.peer = peer;
    for (int x = 0; x < static_cast<int>(all_.size()); ++x) {
      if (Taker(x) != to) continue;
      AddParcels(member(from).sources, all_[x].targets, move);
    }
    return move;
  }

  const std::vector<Participant> all_;
  const LevelCut cut_;
  const int group_;
  const int index_;  // in it
};

}  // namespace

std::vector<AlltoallStep> PlanAlltoall(int rank, int size, int side) {
  KR_CHECK(side >= 2);
  std::vector<Participant> all;
  for (int i = 0; i < size; ++i) all.push_back({i, {i}, {i}});
  std::vector<AlltoallStep> steps;
  std::vector<AlltoallStep> deliveries;
  for (int index = rank;;) {
    const Level level(std::move(all), side, index);
    steps.push_back(level.Gather());
    if (level.is_top()) break;
    deliveries.push_back(level.Deliver());
    if (!level.owns()) break;
    all = level.Above();
    index = level.group();
  }
  while (!deliveries.empty()) {
    steps.push_back(std::move(deliveries.back()));
    deliveries.pop_back();
  }
  return steps;
}

}  // namespace keras_ring
