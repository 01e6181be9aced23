// ResponseCache: what the ranks have agreed on before, by name and by slot.
#ifndef KERAS_RING_CONTROL_RESPONSE_CACHE_H_
#define KERAS_RING_CONTROL_RESPONSE_CACHE_H_

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "csrc/control/request.h"

namespace keras_ring {

// Every rank applies the same decisions in the same order to its cache, so all
// caches evolve alike without a word about it: least recently decided out
// first.
//
// A slot number is given once and never again. So a number that a child sent
// before it learned of an eviction still means what it meant; evicted entries
// are kept readable until every child is known to be past the eviction
// (Forget).
class ResponseCache {
 public:
  using Slot = uint64_t;

  explicit ResponseCache(size_t capacity) : capacity_(capacity) {}

  struct Hit {
    Slot slot;
    std::shared_ptr<const Agreed> agreed;
  };

  // The live entry of `name`, or null.
  const Hit* Find(const std::string& name) const;
  // Live or evicted but not forgotten, or null.
  std::shared_ptr<const Agreed> At(Slot slot) const;

  // Applies decision number `sequence`: a new agreement (replaces the entry of
  // that name) or the use of an old one.
  Slot Insert(std::shared_ptr<const Agreed> agreed, uint64_t sequence);
  void Touch(Slot slot);

  // Evicted entries of decisions up to `sequence` will not be asked for again.
  void Forget(uint64_t sequence);

  size_t size() const { return by_name_.size(); }
  size_t num_evicted() const { return evicted_.size(); }
  // Equal on all ranks at the same point of the sequence of decisions.
  uint64_t Hash() const;

 private:
  struct Live {
    Hit hit;
    std::list<std::string>::iterator age;
  };
  void Evict(const std::string& name, uint64_t sequence);

  const size_t capacity_;
  Slot next_slot_ = 0;
  std::list<std::string> by_age_;  // least recently decided first
  std::unordered_map<std::string, Live> by_name_;
  std::unordered_map<Slot, std::shared_ptr<const Agreed>> by_slot_;
  struct Evicted {
    uint64_t sequence;
    Slot slot;
  };
  std::deque<Evicted> evicted_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_RESPONSE_CACHE_H_
