// The requests and replies of the TCP store, as bytes.
#ifndef KERAS_RING_COMM_STORE_STORE_MESSAGE_H_
#define KERAS_RING_COMM_STORE_STORE_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "csrc/comm/store/store.h"

namespace keras_ring {

inline constexpr size_t kMaxStoreKeyBytes = 256;
inline constexpr size_t kMaxStoreValueBytes = 1 << 20;
inline constexpr size_t kMaxStoreRequestBytes = kMaxStoreValueBytes + 1024;
inline constexpr size_t kMaxStoreReplyBytes = 256 << 20;

struct StoreRequest {
  enum class Kind : uint8_t {
    kSet = 0,
    kList = 1,
    // A rank for which the client speaks has gone. Its key is removed, unless
    // the job is complete: then `value` is the key of its last word.
    kUnset = 2
  };
  Kind kind = Kind::kSet;
  uint64_t id = 0;
  std::string key;        // or the prefix
  std::string value;      // kSet, kUnset
  uint64_t at_least = 0;  // kList
};

// A reply repeats the request's id; only the reply to a list has entries.
struct StoreReply {
  uint64_t id = 0;
  StoreEntries entries;
};

std::string Encode(const StoreRequest& request);
std::string Encode(const StoreReply& reply);
// The same in two steps, for sending one answer to many clients.
std::string EncodeEntries(const StoreEntries& entries);
std::string EncodeReply(uint64_t id, const std::string& entries);
// Return false if the bytes are not exactly one message.
bool Decode(std::string_view bytes, StoreRequest* request);
bool Decode(std::string_view bytes, StoreReply* reply);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_STORE_STORE_MESSAGE_H_
