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

void CheckAgreed(const Response& agreed, const std::vector<Request>& requests) {
  const int size = static_cast<int>(requests.size());
  CheckLimits(agreed, size);
  for (int rank = 0; rank < size; ++rank) {
    // Not by their bytes: a NaN is any NaN.
    KR_CHECK(agreed.RequestOf(rank) == requests[rank]);
    KR_CHECK(agreed.IsOf(requests[rank], rank));
  }
  // Every rank must be able to read it.
  DecisionMessage message;
  message.decisions = {
      ExecuteDecision{{}, {std::make_shared<const Response>(agreed)}, {}}};
  Result<Message> told = DecodeMessage(EncodeMessage(message), size);
  KR_CHECK(told.ok());
}

// One request per rank.
void Run(std::string_view bytes) {
  WireReader reader(bytes);
  std::vector<Request> requests;
  std::vector<RequestVariant> variants;
  while (!reader.AtEnd() && requests.size() < 8) {
    Request request = Request::Decode(reader);
    if (!reader.ok()) break;
    CheckLimits(request);
    CheckRoundTrip(request);
    if (!requests.empty()) request.name = requests.front().name;
    const int32_t rank = static_cast<int32_t>(requests.size());
    AddVariant(variants, VariantOf(request, {rank}));
    KR_CHECK(IsWhole(variants.back()));
    requests.push_back(std::move(request));
  }
  if (variants.empty()) return;
  Result<Response> agreed = Agree(variants, static_cast<int>(requests.size()));
  if (agreed.ok()) return CheckAgreed(*agreed, requests);
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
