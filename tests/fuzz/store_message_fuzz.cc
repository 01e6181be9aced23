// The requests and replies of the TCP store.
#include "csrc/base/status.h"
#include "csrc/comm/store/store_message.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

template <typename Message>
void CheckRoundTrip(const Message& message) {
  const std::string encoded = Encode(message);
  Message again;
  KR_CHECK(Decode(encoded, &again));
  KR_CHECK(Encode(again) == encoded);
}

void CheckRequest(std::string_view bytes) {
  StoreRequest request;
  if (!Decode(bytes, &request)) return;
  KR_CHECK(request.key.size() <= kMaxStoreKeyBytes);
  KR_CHECK(request.value.size() <= kMaxStoreValueBytes);
  KR_CHECK(request.kind == StoreRequest::Kind::kSet ||
           request.kind == StoreRequest::Kind::kList ||
           request.kind == StoreRequest::Kind::kUnset);
  CheckRoundTrip(request);
}

void CheckReply(std::string_view bytes) {
  StoreReply reply;
  if (!Decode(bytes, &reply)) return;
  for (const auto& [key, value] : reply.entries) {
    KR_CHECK(key.size() <= kMaxStoreKeyBytes);
    KR_CHECK(value.size() <= bytes.size());
  }
  CheckRoundTrip(reply);
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace keras_ring;
  Script script(AsText(data, size));
  const bool request = script.Choice(2) == 0;
  const std::string_view bytes = script.Rest();
  if (request) {
    CheckRequest(bytes);
  } else {
    CheckReply(bytes);
  }
  return 0;
}
