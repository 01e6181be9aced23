// Alltoall over levels: parcels of each rank for each other one, among more
// ranks than can all talk to each other.
//
// A rank gives its group what it has for other groups: to the member that
// stands, on the level above, where the receiver stands in its own group. That
// one takes what the whole group has for such receivers there, and so on. So on
// a top level that has groups of groups below, a parcel goes two ways instead
// of one, and each rank sends to 2 sqrt(n) others instead of n.
//
// A group may have a member more than others (LevelCut), which nobody stands
// for above: what is for it goes to the first member, and from there to it.
#ifndef KERAS_RING_COLLECTIVE_NET_LEVELS_ALLTOALL_H_
#define KERAS_RING_COLLECTIVE_NET_LEVELS_ALLTOALL_H_

#include <vector>

namespace keras_ring {

// What rank `from` has for rank `to`.
struct Parcel {
  int from = -1;
  int to = -1;

  bool operator==(const Parcel& other) const {
    return from == other.from && to == other.to;
  }
};

// What a rank sends and receives at the same time, once it has all that the
// step before brought.
struct AlltoallStep {
  struct Move {
    int peer = -1;
    std::vector<Parcel> parcels;  // in this order on both sides
  };
  std::vector<Move> sends;
  std::vector<Move> receives;
};

// The steps of rank `rank` of `size`, which bring it all parcels for it but its
// own. Peers are those of PlanLevels(rank, size, side).
std::vector<AlltoallStep> PlanAlltoall(int rank, int size, int side);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_LEVELS_ALLTOALL_H_
