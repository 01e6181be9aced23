// ResponseCache: the responses that the ranks have agreed on before, by name
// and by slot.
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
// caches stay equal without any communication about it.
//
// Training asks for the same names in every step, in a cycle. If there are more
// names than the cache has room for, evicting the least recently used one for
// each new name would evict each name shortly before it is used again, and no
// name would ever be found. So names that are used again are kept, and new
// names are not inserted, until a name has not been used for much longer than a
// cycle takes that is worth caching in part.
//
// A slot number is assigned once and never reused. So a number that a child
// sent before it learned of an eviction keeps its meaning; evicted entries stay
// readable until every child is known to be past the eviction (Forget).
class ResponseCache {
 public:
  using Slot = uint64_t;

  // At most `capacity` names, and about `max_bytes` bytes: if each rank
  // contributes rows of its own, a response grows with the job.
  explicit ResponseCache(size_t capacity, size_t max_bytes = 64 << 20)
      : capacity_(capacity), max_bytes_(max_bytes) {}

  // Returns the live slot of `name`.
  std::optional<Slot> Find(const std::string& name) const;
  bool IsLive(Slot slot) const;
  // Returns a live entry, or one evicted but not forgotten; else null.
  const std::shared_ptr<const Response>& At(Slot slot) const;
  // Returns whether `request`, made by this `rank`, is what was agreed on under
  // the live `slot`. If so, it is remembered: the same object agrees at once
  // the next time.
  bool Agrees(Slot slot, const RequestPtr& request, int rank);

  // Applies decision number `sequence`: a new response or the use of an old
  // one. Insert replaces the entry of that name; if there is no room, the new
  // slot is live nowhere.
  Slot Insert(std::shared_ptr<const Response> agreed, uint64_t sequence);
  void Touch(Slot slot);

  // Forgets evicted entries of decisions up to `sequence`: no child will refer
  // to them again.
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
  // Returns whether a live slot has not been used for too long.
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
