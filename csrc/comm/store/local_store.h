// LocalStore: a Store in this process's memory. Tests use it as a fake, and the
// TCP store's server keeps its entries in it.
#ifndef KERAS_RING_COMM_STORE_LOCAL_STORE_H_
#define KERAS_RING_COMM_STORE_LOCAL_STORE_H_

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/comm/store/store.h"

namespace keras_ring {

// Thread-safe.
class LocalStore final : public Store {
 public:
  // `changed`, if any, is called after each Set by a caller of Store's
  // interface, with no lock held.
  explicit LocalStore(std::function<void()> changed = nullptr)
      : changed_(std::move(changed)) {}

  Status Set(const std::string& key, const std::string& value,
             Deadline deadline) override;
  Result<StoreEntries> List(const std::string& prefix, size_t at_least,
                            Deadline deadline) override;

  // The changes under a prefix, in order, beginning with the entries that are
  // there. So a reader that waits for many keys handles each only once.
  class Feed;
  struct Change {
    std::string key;
    std::string value;
    bool gone = false;
  };
  // The store must outlive it.
  std::unique_ptr<Feed> Follow(const std::string& prefix);

  // For the server: keys belong to the client they are removed with.
  static constexpr int kNoOwner = -1;
  void SetOwned(const std::string& key, const std::string& value, int owner);
  // Removes the keys of `owner`; returns them.
  std::vector<std::string> RemoveOwner(int owner);
  // Returns false if the key is not there, or not `owner`'s.
  bool Remove(const std::string& key, int owner);
  // The key belongs to no client. Returns false if it was there.
  bool SetIfMissing(const std::string& key, const std::string& value);
  std::optional<StoreEntries> TryList(const std::string& prefix,
                                      size_t at_least) const;

 private:
  friend class Feed;
  void ChangedLocked(const Change& change) KR_REQUIRES(mutex_);
  struct Entry {
    std::string value;
    int owner = kNoOwner;
  };
  size_t CountLocked(const std::string& prefix) const KR_REQUIRES(mutex_);
  StoreEntries ListLocked(const std::string& prefix) const KR_REQUIRES(mutex_);

  const std::function<void()> changed_;
  mutable Mutex mutex_;
  CondVar came_;
  std::map<std::string, Entry> entries_ KR_GUARDED_BY(mutex_);
  std::list<Feed*> feeds_ KR_GUARDED_BY(mutex_);
};

class LocalStore::Feed {
 public:
  ~Feed();
  // Returns kDeadlineExceeded if no further change comes.
  Result<Change> Next(Deadline deadline);

 private:
  friend class LocalStore;
  Feed(LocalStore& store, std::string prefix)
      : store_(store), prefix_(std::move(prefix)) {}

  LocalStore& store_;
  const std::string prefix_;
  std::deque<Change> changes_;  // guarded by the store's mutex
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_STORE_LOCAL_STORE_H_
