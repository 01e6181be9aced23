// LocalStore: a Store in this process's memory. The fake for tests, and what
// the TCP store's server keeps its entries in.
#ifndef KERAS_RING_COMM_STORE_LOCAL_STORE_H_
#define KERAS_RING_COMM_STORE_LOCAL_STORE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

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

  // For the server: keys by the client they die with.
  static constexpr int kNoOwner = -1;
  void SetOwned(const std::string& key, const std::string& value, int owner);
  void RemoveOwner(int owner);
  // Nobody's key. False if it was there.
  bool SetIfMissing(const std::string& key, const std::string& value);
  std::optional<StoreEntries> TryList(const std::string& prefix,
                                      size_t at_least) const;

 private:
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
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_STORE_LOCAL_STORE_H_
