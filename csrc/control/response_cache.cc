#include "csrc/control/response_cache.h"

#include <functional>
#include <utility>

namespace keras_ring {

std::optional<ResponseCache::Slot> ResponseCache::Find(
    const std::string& name) const {
  auto it = by_name_.find(name);
  if (it == by_name_.end()) return std::nullopt;
  return it->second;
}

bool ResponseCache::IsLive(Slot slot) const {
  auto it = by_slot_.find(slot);
  return it != by_slot_.end() && it->second.live;
}

const std::shared_ptr<const Agreed>& ResponseCache::At(Slot slot) const {
  static const std::shared_ptr<const Agreed> none;
  auto it = by_slot_.find(slot);
  return it == by_slot_.end() ? none : it->second.agreed;
}

bool ResponseCache::Agrees(Slot slot, const RequestPtr& request, int rank) {
  Entry& entry = by_slot_.at(slot);
  if (entry.own == request) return true;
  if (!entry.agreed->IsOf(*request, rank)) return false;
  entry.own = request;
  return true;
}

ResponseCache::Slot ResponseCache::Insert(std::shared_ptr<const Agreed> agreed,
                                          uint64_t sequence) {
  const Slot slot = next_slot_++;
  if (capacity_ == 0) return slot;
  const std::string& name = agreed->request.name;
  if (std::optional<Slot> before = Find(name)) Evict(*before, sequence);
  if (by_name_.size() >= capacity_) Evict(by_age_.front(), sequence);
  by_age_.push_back(slot);
  by_name_[name] = slot;
  by_slot_[slot] =
      Entry{std::move(agreed), nullptr, true, std::prev(by_age_.end())};
  return slot;
}

void ResponseCache::Touch(Slot slot) {
  auto it = by_slot_.find(slot);
  if (it == by_slot_.end() || !it->second.live) return;
  by_age_.splice(by_age_.end(), by_age_, it->second.age);
}

void ResponseCache::Evict(Slot slot, uint64_t sequence) {
  Entry& entry = by_slot_.at(slot);
  entry.live = false;
  by_age_.erase(entry.age);
  by_name_.erase(entry.agreed->request.name);
  evicted_.push_back(Evicted{sequence, slot});
}

void ResponseCache::Forget(uint64_t sequence) {
  while (!evicted_.empty() && evicted_.front().sequence <= sequence) {
    by_slot_.erase(evicted_.front().slot);
    evicted_.pop_front();
  }
}

uint64_t ResponseCache::Hash() const {
  uint64_t hash = next_slot_;
  for (Slot slot : by_age_) {
    const std::string& name = At(slot)->request.name;
    for (uint64_t part : {std::hash<std::string>()(name), size_t(slot)}) {
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    }
  }
  return hash;
}

}  // namespace keras_ring
