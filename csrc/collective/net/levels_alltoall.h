// Alltoall over levels: a parcel from each rank to each other one, among more
// ranks than can all be linked.
//
// A rank hands over its parcels for other groups within its group: to the
// member with the position that, on the level above, the receiver has in its
// own group. That member sends the parcels of the whole group to such receivers
// there, and so on. So with one level of groups below the top, a parcel is sent
// twice instead of once, and each rank sends to 2 sqrt(n) others instead of n.
//
// A group may have one member more than others (LevelCut), which no member of
// another group corresponds to: parcels for it go to the first member, and from
// there to it.
#ifndef KERAS_RING_COLLECTIVE_NET_LEVELS_ALLTOALL_H_
#define KERAS_RING_COLLECTIVE_NET_LEVELS_ALLTOALL_H_

#include <vector>

namespace keras_ring {

// The data of rank `from` for rank `to`.
struct Parcel {
  int from = -1;
  int to = -1;

  bool operator==(const Parcel& other) const {
    return from == other.from && to == other.to;
  }
};

// The sends and receives of a rank that run at the same time, once all that the
// step before brought is there.
struct AlltoallStep {
  struct Move {
    int peer = -1;
    std::vector<Parcel> parcels;  // in this order on both sides
  };
  std::vector<Move> sends;
  std::vector<Move> receives;
};

// Returns the steps of rank `rank` of `size`, which bring it all parcels for it
// except its own. Peers are those of PlanLevels(rank, size, side).
std::vector<AlltoallStep> PlanAlltoall(int rank, int size, int side);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_LEVELS_ALLTOALL_H_
