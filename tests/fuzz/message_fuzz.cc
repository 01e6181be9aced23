// The messages of the control plane.
#include "csrc/control/message.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_limits.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

void Run(int size, std::string_view bytes) {
  Result<Message> message = DecodeMessage(bytes, size);
  if (!message.ok()) {
    KR_CHECK(message.status().code() == StatusCode::kInternal);
    KR_CHECK(!message.status().message().empty());
    return;
  }
  CheckLimits(*message, size);
  const std::string encoded = EncodeMessage(*message);
  Result<Message> again = DecodeMessage(encoded, size);
  KR_CHECK(again.ok());
  KR_CHECK(EncodeMessage(*again) == encoded);
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keras_ring::Script script(keras_ring::AsText(data, size));
  const int ranks = 1 + script.Choice(32);
  keras_ring::Run(ranks, script.Rest());
  return 0;
}
