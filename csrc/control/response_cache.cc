#include "csrc/control/response_cache.h"

#include <functional>
#include <utility>

namespace keras_ring {
namespace {

// A name counts as unused if it was not used among this many times as many uses
// as there are names. In a longer cycle, less than a quarter of the names could
// be kept.
constexpr uint64_t kPatience = 4;

// Estimated, not measured: the same on every rank.
size_t BytesOf(const Response& agreed) {
  // Nodes and pointers, and the request that the rank made itself.
  size_t bytes = 512 + 4 * agreed.request.name.size();
  for (const TensorSpec& tensor : agreed.request.tensors) {
    bytes += 2 * (sizeof(tensor) + 8 * tensor.shape.size());
  }
  bytes += 8 * agreed.rows.size();
  for (const std::vector<int64_t>& splits : agreed.splits) {
    bytes += sizeof(splits) + 8 * splits.size();
  }
  return bytes;
}

}  // namespace

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

const std::shared_ptr<const Response>& ResponseCache::At(Slot slot) const {
  static const std::shared_ptr<const Response> none;
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

ResponseCache::Slot ResponseCache::Insert(
    std::shared_ptr<const Response> agreed, uint64_t sequence) {
  const Slot slot = next_slot_++;
  ++uses_;
  const std::string& name = agreed->request.name;
  if (std::optional<Slot> before = Find(name)) Evict(*before, sequence);
  const size_t bytes = BytesOf(*agreed);
  if (bytes > max_bytes_) return slot;
  while (!HasRoom(bytes)) {
    if (by_age_.empty() || !IsOverdue(by_age_.front())) return slot;
    Evict(by_age_.front(), sequence);
  }
  by_age_.push_back(slot);
  by_name_[name] = slot;
  bytes_ += bytes;
  by_slot_[slot] = Entry{std::move(agreed),       nullptr, true, bytes, uses_,
                         std::prev(by_age_.end())};
  return slot;
}

bool ResponseCache::IsOverdue(Slot slot) const {
  return uses_ - by_slot_.at(slot).used > kPatience * by_name_.size();
}

void ResponseCache::Touch(Slot slot) {
  auto it = by_slot_.find(slot);
  if (it == by_slot_.end() || !it->second.live) return;
  it->second.used = ++uses_;
  by_age_.splice(by_age_.end(), by_age_, it->second.age);
}

void ResponseCache::Evict(Slot slot, uint64_t sequence) {
  Entry& entry = by_slot_.at(slot);
  entry.live = false;
  bytes_ -= entry.bytes;
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
  uint64_t hash = next_slot_ + (uses_ << 32);
  for (Slot slot : by_age_) {
    const std::string& name = At(slot)->request.name;
    for (uint64_t part : {std::hash<std::string>()(name), size_t(slot)}) {
      hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    }
  }
  return hash;
}

}  // namespace keras_ring
