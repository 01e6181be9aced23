#include "csrc/comm/store/local_store.h"

#include <iterator>
#include <utility>

namespace keras_ring {
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
  ChangedLocked({key, value});
}

bool LocalStore::SetIfMissing(const std::string& key,
                              const std::string& value) {
  MutexLock lock(mutex_);
  const bool is_new = entries_.emplace(key, Entry{value, kNoOwner}).second;
  if (is_new) ChangedLocked({key, value});
  return is_new;
}

std::vector<std::string> LocalStore::RemoveOwner(int owner) {
  std::vector<std::string> removed;
  MutexLock lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (it->second.owner != owner) {
      ++it;
      continue;
    }
    removed.push_back(it->first);
    it = entries_.erase(it);
    ChangedLocked({removed.back(), "", /*gone=*/true});
  }
  return removed;
}

bool LocalStore::Remove(const std::string& key, int owner) {
  MutexLock lock(mutex_);
  auto it = entries_.find(key);
  if (it == entries_.end() || it->second.owner != owner) return false;
  entries_.erase(it);
  ChangedLocked({key, "", /*gone=*/true});
  return true;
}

void LocalStore::ChangedLocked(const Change& change) {
  for (Feed* feed : feeds_) {
    if (HasPrefix(change.key, feed->prefix_)) feed->changes_.push_back(change);
  }
  came_.NotifyAll();
}

std::unique_ptr<LocalStore::Feed> LocalStore::Follow(
    const std::string& prefix) {
  std::unique_ptr<Feed> feed(new Feed(*this, prefix));
  MutexLock lock(mutex_);
  for (const auto& [key, value] : ListLocked(prefix)) {
    feed->changes_.push_back({key, value});
  }
  feeds_.push_back(feed.get());
  return feed;
}

LocalStore::Feed::~Feed() {
  MutexLock lock(store_.mutex_);
  store_.feeds_.remove(this);
}

Result<LocalStore::Change> LocalStore::Feed::Next(Deadline deadline) {
  MutexLock lock(store_.mutex_);
  const bool came = store_.came_.WaitUntil(
      store_.mutex_, deadline.at(),
      [this]() KR_REQUIRES(store_.mutex_) { return !changes_.empty(); });
  if (!came) return DeadlineExceededError("nothing has changed in the store");
  Change change = std::move(changes_.front());
  changes_.pop_front();
  return change;
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
