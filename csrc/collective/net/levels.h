// Levels: groups of groups, for reductions among more ranks than can all talk
// to each other.
//
// On each level, ranks that follow each other form *groups* of `side` or a few
// more. The members of a group reduce what they have among themselves, and each
// *owner*, of which all groups of a level have as many, takes its part of the
// sums to the level above: there it meets the owners of the same index in the
// other groups, and so on, until one group is left. Results go back down the
// same way.
//
//   side            that is known as                      levels
//   no less than n  pairwise reduce-scatter and allgather  1
//   sqrt(n)         a two-dimensional torus                2
//   cbrt(n)         a three-dimensional torus              3
//   2               recursive halving and doubling         log2(n)
//
// All of them send the least bytes that are possible; with a smaller side there
// are fewer messages, and more of them one after the other. Where one member of
// each group takes all, a side of 2 is a binomial tree.
//
//   R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective
//   communication operations in MPICH", 2005
#ifndef KERAS_RING_COLLECTIVE_NET_LEVELS_H_
#define KERAS_RING_COLLECTIVE_NET_LEVELS_H_

#include <vector>

namespace keras_ring {

// The group of a rank on one level.
struct Group {
  std::vector<int> ranks;  // of its members, ascending
  // Member m represents the ranks begins[m] to begins[m + 1] - 1.
  std::vector<int> begins;
  int index = 0;        // of this rank among them
  int owners = 1;       // the first members
  bool is_top = false;  // there are no other groups on this level
};

// Returns the groups of rank `rank` of `size`, from the lowest level up to that
// on which it owns nothing, or to the top. `side`: at least 2.
std::vector<Group> PlanLevels(int rank, int size, int side);

// Returns the size of the largest group, by level, the top included.
std::vector<int> LargestGroups(int size, int side);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_LEVELS_H_
