#include "csrc/collective/net/levels.h"

#include <numeric>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/collective/net/level_cut.h"

namespace keras_ring {

std::vector<Group> PlanLevels(int rank, int size, int side) {
  KR_CHECK(side >= 2);
  std::vector<Group> levels;
  // The ranks that this rank may meet on a level: one of each group below.
  std::vector<int> candidates(size);
  std::iota(candidates.begin(), candidates.end(), 0);
  // The first rank that each of them represents; and the end.
  std::vector<int> begins(size + 1);
  std::iota(begins.begin(), begins.end(), 0);
  int index = rank;
  while (true) {
    const LevelCut cut(static_cast<int>(candidates.size()), side);
    const int own = cut.GroupOf(index);
    Group group;
    group.ranks.assign(candidates.begin() + cut.begin(own),
                       candidates.begin() + cut.begin(own + 1));
    group.begins.assign(begins.begin() + cut.begin(own),
                        begins.begin() + cut.begin(own + 1) + 1);
    group.index = index - cut.begin(own);
    group.owners = cut.owners();
    group.is_top = cut.num_groups() == 1;
    levels.push_back(group);
    if (group.is_top || group.index >= group.owners) return levels;
    std::vector<int> above;
    std::vector<int> begins_above;
    for (int other = 0; other < cut.num_groups(); ++other) {
      above.push_back(candidates[cut.begin(other) + group.index]);
      begins_above.push_back(begins[cut.begin(other)]);
    }
    begins_above.push_back(begins.back());
    candidates = std::move(above);
    begins = std::move(begins_above);
    index = own;
  }
}

std::vector<int> LargestGroups(int size, int side) {
  std::vector<int> largest;
  for (int count = size;;) {
    const LevelCut cut(count, side);
    largest.push_back(cut.largest());
    count = cut.num_groups();
    if (count == 1) return largest;
  }
}

}  // namespace keras_ring
