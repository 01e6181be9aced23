// ResponseCache: what the ranks have agreed on before, by name and by slot.
#ifndef KERAS_RING_CONTROL_RESPONSE_CACHE_H_
#define KERAS_RING_CONTROL_RESPONSE_CACHE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "csrc/control/request.h"

namespace keras_ring {

// Every rank applies the same decisions in the same order to its cache, so all
// caches evolve alike without a word about it.
//
// Training asks for the same names in every step, in a cycle. If these are more
// than there is room for, and what was decided least recently had to go for
// what is new, each would go shortly before it comes again, and none would ever
// be found. So what comes again is kept, and what is new is not remembered,
// until something has not come again for much longer than a cycle takes that is
// worth keeping a part of.
//
// A slot number is given once and never again. So a number that a child sent
// before it learned of an eviction still means what it meant; evicted entries
// are kept readable until every child is known to be past the eviction
// (Forget).
class ResponseCache {
 public:
  using Slot = uint64_t;

  // At most so many names, and about so many bytes: where each rank brings
  // rows of its own, an agreement grows with the job.
  explicit ResponseCache(size_t capacity, size_t max_bytes = 64 << 20)
      : capacity_(capacity), max_bytes_(max_bytes) {}

  // The live slot of `name`.
  std::optional<Slot> Find(const std::string& name) const;
  bool IsLive(Slot slot) const;
  // Live or evicted but not forgotten, or null.
  const std::shared_ptr<const Response>& At(Slot slot) const;
  // Whether `request`, made by this `rank`, is what was agreed on under the
  // live `slot`. Remembers it: the same object agrees at once the next time.
  bool Agrees(Slot slot, const RequestPtr& request, int rank);

  // Applies decision number `sequence`: a new agreement (replaces the entry of
  // that name; may find no room, then its slot is live nowhere) or the use of
  // an old one.
  Slot Insert(std::shared_ptr<const Response> agreed, uint64_t sequence);
  void Touch(Slot slot);

  // Evicted entries of decisions up to `sequence` will not be asked for again.
  void Forget(uint64_t sequence);

  size_t size() const { return by_name_.size(); }
  size_t bytes() const { return bytes_; }
  size_t num_evicted() const { return evicted_.size(); }
  // Equal on all ranks at the same point of the sequence of decisions.
  uint64_t Hash() const;

 private:
  struct Entry {
    std::shared_ptr<const Response> agreed;
    RequestPtr own;  // of this rank, if it has agreed
    bool live = true;
    size_t bytes = 0;
    uint64_t used = 0;              // uses_ at its last use
    std::list<Slot>::iterator age;  // if live
  };
  void Evict(Slot slot, uint64_t sequence);
  bool HasRoom(size_t bytes) const {
    return by_name_.size() < capacity_ && bytes_ + bytes <= max_bytes_;
  }
  // Whether a live slot has not come again for too long.
  bool IsOverdue(Slot slot) const;

  const size_t capacity_;
  const size_t max_bytes_;
  size_t bytes_ = 0;   // of the live ones, as far as they are alike everywhere
  uint64_t uses_ = 0;  // insertions and touches
  Slot next_slot_ = 0;
  std::list<Slot> by_age_;  // the live ones, least recently decided first
  std::unordered_map<std::string, Slot> by_name_;  // the live ones
  std::unordered_map<Slot, Entry> by_slot_;
  struct Evicted {
    uint64_t sequence;
    Slot slot;
  };
  std::deque<Evicted> evicted_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_RESPONSE_CACHE_H_
