#include "csrc/control/response_cache.h"

#include <functional>
#include <utility>

namespace keras_ring {

const ResponseCache::Hit* ResponseCache::Find(const std::string& name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &it->second.hit;
}

std::shared_ptr<const Agreed> ResponseCache::At(Slot slot) const {
  auto it = by_slot_.find(slot);
  return it == by_slot_.end() ? nullptr : it->second;
}

ResponseCache::Slot ResponseCache::Insert(std::shared_ptr<const Agreed> agreed,
                                          uint64_t sequence) {
  const Slot slot = next_slot_++;
  if (capacity_ == 0) return slot;
  const std::string name = agreed->request.name;
  if (by_name_.count(name) > 0) Evict(name, sequence);
  if (by_name_.size() >= capacity_) {
    const std::string oldest = by_age_.front();
    Evict(oldest, sequence);
  }
  by_age_.push_back(name);
  by_slot_[slot] = agreed;
  by_name_[name] = Live{Hit{slot, std::move(agreed)}, std::prev(by_age_.end())};
  return slot;
}

void ResponseCache::Touch(Slot slot) {
  auto it = by_slot_.find(slot);
  if (it == by_slot_.end()) return;
  auto live = by_name_.find(it->second->request.name);
  if (live == by_name_.end() || live->second.hit.slot != slot) return;
  by_age_.splice(by_age_.end(), by_age_, live->second.age);
}

void ResponseCache::Evict(const std::string& name, uint64_t sequence) {
  auto it = by_name_.find(name);
  evicted_.push_back(Evicted{sequence, it->second.hit.slot});
  by_age_.erase(it->second.age);
  by_name_.erase(it);
}

void ResponseCache::Forget(uint64_t sequence) {
  while (!evicted_.empty() && evicted_.front().sequence <= sequence) {
    by_slot_.erase(evicted_.front().slot);
    evicted_.pop_front();
  }
}

uint64_t ResponseCache::Hash() const {
  uint64_t hash = next_slot_;
  for (const std::string& name : by_age_) {
    const Hit* hit = Find(name);
    for (uint64_t part : {std::hash<std::string>()(name), size_t(hit->slot)}) {
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    }
  }
  return hash;
}

}  // namespace keras_ring
