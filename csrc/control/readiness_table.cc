#include "csrc/control/readiness_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace keras_ring {

void ReadinessTable::Pending::Clear() {
  slot.reset();
  agreed.reset();
  variants.clear();
  from.clear();
}

ReadinessTable::Entry* ReadinessTable::EntryFor(const std::string& name,
                                                uint64_t sent_at) {
  if (HasFailedSince(name, sent_at)) return nullptr;
  const bool first = pending_.empty();
  if (first) oldest_ = BatchTime();
  const auto [it, is_new] = pending_.TryEmplace(name);
  if (is_new) it->second.since = BatchTime();
  listener_.OnPending(BatchTime(), first);
  return &*it;
}

ReadinessTable::Entry* ReadinessTable::EntryOf(ResponseCache::Slot slot) {
  const auto it = by_slot_.find(slot);
  return it == by_slot_.end() ? nullptr : it->second.entry;
}

TimePoint ReadinessTable::BatchTime() {
  if (!batch_time_) batch_time_ = clock_.Now();
  return *batch_time_;
}

Status ReadinessTable::AddContributor(Entry& entry, const Contributor& who) {
  auto& [name, pending] = entry;
  if (std::find(pending.from.begin(), pending.from.end(), who.from) !=
      pending.from.end()) {
    return InternalError("readiness a second time for '" + name + "'");
  }
  const TimePoint first_ready = BatchTime() - who.last.late;
  if (pending.from.empty() || first_ready < pending.first_ready) {
    pending.first_ready = first_ready;
  }
  pending.from.push_back(who.from);
  pending.last = BatchTime();
  pending.last_rank =
      who.last.rank == LastReady::kNone ? who.from : who.last.rank;
  return OkStatus();
}

void ReadinessTable::SetSlot(Entry& entry, ResponseCache::Slot slot,
                             std::shared_ptr<const Response> agreed) {
  entry.second.slot = slot;
  entry.second.agreed = std::move(agreed);
  by_slot_.TryEmplace(slot).first->second.entry = &entry;
}

void ReadinessTable::ResetSlot(Pending& pending) {
  if (!pending.slot) return;
  by_slot_.Erase(*pending.slot);
  pending.slot.reset();
}

void ReadinessTable::Erase(Entry& entry) {
  ResetSlot(entry.second);
  pending_.Erase(entry.first);
}

Status ReadinessTable::Contribute(const Contributor& who,
                                  ResponseCache::Slot slot,
                                  std::shared_ptr<const Response> agreed) {
  if (tree_.children.empty()) {
    listener_.OnSlotComplete(slot, std::move(agreed), who.last);
    return OkStatus();
  }
  if (Entry* const entry = EntryOf(slot)) {
    if (HasFailedSince(entry->first, who.sent_at)) return OkStatus();
    listener_.OnPending(BatchTime(), /*first=*/false);
    KR_RETURN_IF_ERROR(AddContributor(*entry, who));
    CompleteIfReady(*entry);
    return OkStatus();
  }
  Entry* const entry = EntryFor(agreed->request.name, who.sent_at);
  if (entry == nullptr) return OkStatus();
  Pending& pending = entry->second;
  KR_RETURN_IF_ERROR(AddContributor(*entry, who));
  if (pending.from.size() == 1) {
    SetSlot(*entry, slot, std::move(agreed));
  } else {
    // Some ranks mean this slot and some do not: from here on in full.
    if (pending.slot) ExpandOthers(pending, who.from);
    ResetSlot(pending);
    pending.agreed = std::move(agreed);
    ExpandSlot(pending, who.from);
    pending.agreed.reset();
  }
  CompleteIfReady(*entry);
  return OkStatus();
}

Status ReadinessTable::Contribute(const Contributor& who,
                                  std::vector<RequestVariant> variants) {
  Entry* const entry = EntryFor(variants.front().request.name, who.sent_at);
  if (entry == nullptr) return OkStatus();
  Pending& pending = entry->second;
  KR_RETURN_IF_ERROR(AddContributor(*entry, who));
  if (pending.slot) {
    ExpandOthers(pending, who.from);
    ResetSlot(pending);
    pending.agreed.reset();
  }
  for (RequestVariant& variant : variants) {
    AddVariant(pending.variants, std::move(variant));
  }
  CompleteIfReady(*entry);
  return OkStatus();
}

void ReadinessTable::ExpandSlot(Pending& pending, int from) const {
  AddVariant(pending.variants,
             pending.agreed->VariantOf(participants_.RanksOf(from)));
}

void ReadinessTable::ExpandOthers(Pending& pending, int from) const {
  for (int other : pending.from) {
    if (other != from) ExpandSlot(pending, other);
  }
}

void ReadinessTable::CompleteIfReady(Entry& entry) {
  Pending& pending = entry.second;
  if (pending.from.size() < participants_.NumContributors()) return;
  if (pending.slot && !tree_.is_root() && !cache_.IsLive(*pending.slot)) {
    // It was evicted while part of the subtree was still missing: the parent
    // may have forgotten it.
    for (int from : pending.from) ExpandSlot(pending, from);
    ResetSlot(pending);
  }
  const LastReady last =
      LastReady::Of(pending.last_rank, pending.last - pending.first_ready);
  if (pending.slot) {
    const ResponseCache::Slot slot = *pending.slot;
    std::shared_ptr<const Response> agreed = std::move(pending.agreed);
    Erase(entry);
    listener_.OnSlotComplete(slot, std::move(agreed), last);
  } else {
    const std::string name = entry.first;
    std::vector<RequestVariant> variants = std::move(pending.variants);
    Erase(entry);
    listener_.OnVariantsComplete(name, std::move(variants), last);
  }
}

void ReadinessTable::CompleteWithoutJoined() {
  std::vector<std::string> names;
  for (const auto& [name, pending] : pending_) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const auto it = pending_.find(name);
    if (it != pending_.end()) CompleteIfReady(*it);
  }
}

void ReadinessTable::Fail(const std::string& name, uint64_t sequence) {
  const auto it = pending_.find(name);
  if (it != pending_.end()) Erase(*it);
  failed_[name] = sequence;
}

bool ReadinessTable::HasFailedSince(const std::string& name,
                                    uint64_t sent_at) const {
  if (failed_.empty()) return false;
  const auto failed = failed_.find(name);
  return failed != failed_.end() && sent_at < failed->second;
}

void ReadinessTable::ForgetFailed(uint64_t everyone) {
  for (auto it = failed_.begin(); it != failed_.end();) {
    it = it->second <= everyone ? failed_.erase(it) : std::next(it);
  }
}

std::vector<StalledTensor> ReadinessTable::List() const {
  std::vector<StalledTensor> list;
  for (const auto& [name, pending] : pending_) {
    const Request& request = pending.agreed ? pending.agreed->request
                                            : pending.variants.front().request;
    std::vector<int32_t> ranks;
    for (int from : pending.from) {
      const std::vector<int32_t> below = participants_.RanksOf(from);
      ranks.insert(ranks.end(), below.begin(), below.end());
    }
    std::sort(ranks.begin(), ranks.end());
    list.push_back(
        {name, request.Label(), std::move(ranks), pending.since, pending.last});
  }
  return list;
}

void ReadinessTable::RefreshOldest(TimePoint now) {
  oldest_ = now;
  for (const auto& [name, pending] : pending_) {
    oldest_ = std::min(oldest_, pending.since);
  }
}

}  // namespace keras_ring
