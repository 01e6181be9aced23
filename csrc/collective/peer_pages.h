// PeerPages: how much of the other ranks' arenas this rank has mapped.
#ifndef KERAS_RING_COLLECTIVE_PEER_PAGES_H_
#define KERAS_RING_COLLECTIVE_PEER_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/comm/host_group.h"

namespace keras_ring {

// A page of another rank that this rank has read counts as this rank's resident
// memory from then on, though it is there only once. Over time that would be
// all that the others ever had. So the pages are counted, and unmapped when
// they are too many: what they hold stays where it is, and reading them again
// maps them again.
//
// For one thread.
class PeerPages {
 public:
  // `group` and `counters` must outlive the object. `limit`: in bytes.
  PeerPages(const HostGroup& group, size_t limit, Counters& counters);

  // This rank reads these bytes of the rank at `place`.
  void NoteRead(int place, const char* begin, size_t bytes);
  // Unmaps them all if they are more than the limit.
  void UnmapIfTooMany();

  size_t bytes() const { return mapped_ * granule_; }

 private:
  const HostGroup& group_;
  const size_t limit_;
  Counters& counters_;
  // What the system maps at once when one byte of it is read.
  const size_t granule_;
  // By place: the numbers of the granules, from the beginning of the arena.
  std::vector<std::unordered_set<uint64_t>> granules_;
  size_t mapped_ = 0;  // of all places together
};

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_PEER_PAGES_H_
