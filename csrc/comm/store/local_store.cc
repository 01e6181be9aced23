#include "csrc/comm/store/local_store.h"

namespace keras_ring {
namespace {

bool HasPrefix(const std::string& key, const std::string& prefix) {
  return key.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

Status LocalStore::Set(const std::string& key, const std::string& value,
                       Deadline) {
  SetOwned(key, value, kNoOwner);
  if (changed_) changed_();
  return OkStatus();
}

Result<StoreEntries> LocalStore::List(const std::string& prefix,
                                      size_t at_least, Deadline deadline) {
  MutexLock lock(mutex_);
  bool enough = came_.WaitUntil(
      mutex_, deadline.at(),
      [&]() KR_REQUIRES(mutex_) { return CountLocked(prefix) >= at_least; });
  if (!enough) {
    return DeadlineExceededError(std::to_string(CountLocked(prefix)) + " of " +
                                 std::to_string(at_least) + " keys '" + prefix +
                                 "*' have come");
  }
  return ListLocked(prefix);
}

void LocalStore::SetOwned(const std::string& key, const std::string& value,
                          int owner) {
  MutexLock lock(mutex_);
  entries_[key] = {value, owner};
  came_.NotifyAll();
}

bool LocalStore::SetIfMissing(const std::string& key,
                              const std::string& value) {
  MutexLock lock(mutex_);
  const bool is_new = entries_.emplace(key, Entry{value, kNoOwner}).second;
  if (is_new) came_.NotifyAll();
  return is_new;
}

void LocalStore::RemoveOwner(int owner) {
  MutexLock lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    it = it->second.owner == owner ? entries_.erase(it) : std::next(it);
  }
}

std::optional<StoreEntries> LocalStore::TryList(const std::string& prefix,
                                                size_t at_least) const {
  MutexLock lock(mutex_);
  if (CountLocked(prefix) < at_least) return std::nullopt;
  return ListLocked(prefix);
}

size_t LocalStore::CountLocked(const std::string& prefix) const {
  size_t count = 0;
  for (auto it = entries_.lower_bound(prefix);
       it != entries_.end() && HasPrefix(it->first, prefix); ++it) {
    ++count;
  }
  return count;
}

StoreEntries LocalStore::ListLocked(const std::string& prefix) const {
  StoreEntries found;
  for (auto it = entries_.lower_bound(prefix);
       it != entries_.end() && HasPrefix(it->first, prefix); ++it) {
    found.emplace(it->first, it->second.value);
  }
  return found;
}

}  // namespace keras_ring
