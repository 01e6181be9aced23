// LocalStore: a Store in this process's memory. The fake for tests, and what
// the TCP store's server keeps its entries in.
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

  // What comes and goes under a prefix, in order: first what is there. So who
  // waits for many keys looks at each once.
  class Feed;
  struct Change {
    std::string key;
    std::string value;
    bool gone = false;
  };
  // The store must outlive it.
  std::unique_ptr<Feed> Follow(const std::string& prefix);

  // For the server: keys by the client they die with.
  static constexpr int kNoOwner = -1;
  void SetOwned(const std::string& key, const std::string& value, int owner);
  // What is `owner`'s; returns those keys.
  std::vector<std::string> RemoveOwner(int owner);
  // False if it is not there, or not `owner`'s.
  bool Remove(const std::string& key, int owner);
  // Nobody's key. False if it was there.
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
  // kDeadlineExceeded if nothing more comes.
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
