// Store: the small key/value service by which the ranks of a job find each
// other. Nothing else uses it, so it has only the two operations needed for
// that.
#ifndef KERAS_RING_COMM_STORE_STORE_H_
#define KERAS_RING_COMM_STORE_STORE_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"

namespace keras_ring {

using StoreEntries = std::map<std::string, std::string>;

inline bool HasPrefix(std::string_view key, std::string_view prefix) {
  return key.substr(0, prefix.size()) == prefix;
}

// Keys live as long as the client that set them: the entries of a rank that
// went away do not block the rank that replaces it.
class Store {
 public:
  virtual ~Store() = default;

  // Replaces the previous value.
  virtual Status Set(const std::string& key, const std::string& value,
                     Deadline deadline) = 0;

  // Waits until at least `at_least` keys begin with `prefix`; returns all of
  // them. kDeadlineExceeded if they do not come in time; kUnavailable if the
  // store has gone.
  virtual Result<StoreEntries> List(const std::string& prefix, size_t at_least,
                                    Deadline deadline) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_STORE_STORE_H_
