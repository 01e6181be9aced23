// Requests as they travel, and what a coordinator makes of those of one name.
#include <algorithm>

#include "csrc/control/request.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/message_limits.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

std::string Encoded(const Request& request) {
  WireWriter writer;
  request.Encode(writer);
  return writer.Take();
}

void CheckRoundTrip(const Request& request) {
  const std::string bytes = Encoded(request);
  WireReader reader(bytes);
  const Request again = Request::Decode(reader);
  KR_CHECK(reader.Finished());
  KR_CHECK(Encoded(again) == bytes);
}

void CheckAgreed(const Agreed& agreed, const std::vector<Variant>& variants,
                 int size) {
  CheckLimits(agreed, size);
  for (const Variant& variant : variants) {
    for (int32_t rank : variant.ranks) {
      // Not by their bytes: a NaN is any NaN.
      KR_CHECK(agreed.RequestOf(rank) == variant.request);
      KR_CHECK(agreed.IsOf(variant.request, rank));
    }
  }
  // Every rank must be able to read it.
  DecisionMessage message;
  message.decisions.resize(1);
  message.decisions[0].news = {std::make_shared<const Agreed>(agreed)};
  Result<Message> told = DecodeMessage(EncodeMessage(message), size);
  KR_CHECK(told.ok());
}

// One request per rank.
void Run(std::string_view bytes) {
  WireReader reader(bytes);
  std::vector<Variant> variants;
  int size = 0;
  while (!reader.AtEnd() && size < 8) {
    const Request request = Request::Decode(reader);
    if (!reader.ok()) break;
    CheckLimits(request);
    CheckRoundTrip(request);
    auto same = std::find_if(
        variants.begin(), variants.end(),
        [&](const Variant& variant) { return variant.request == request; });
    if (same == variants.end()) {
      variants.push_back({request, {size}});
      variants.back().request.name = variants.front().request.name;
    } else {
      same->ranks.push_back(size);
    }
    ++size;
  }
  if (variants.empty()) return;
  Result<Agreed> agreed = Agree(variants, size);
  if (agreed.ok()) return CheckAgreed(*agreed, variants, size);
  const StatusCode code = agreed.status().code();
  KR_CHECK(code == StatusCode::kFailedPrecondition ||
           code == StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  keras_ring::Run(keras_ring::AsText(data, size));
  return 0;
}
