// The messages between a rank of an elastic job and its launcher.
#include "csrc/comm/rendezvous/membership.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

void CheckReport(std::string_view bytes) {
  const Result<MemberReport> report = DecodeReport(bytes);
  if (!report.ok()) return;
  const std::string encoded = EncodeReport(*report);
  const Result<MemberReport> again = DecodeReport(encoded);
  KR_CHECK(again.ok());
  KR_CHECK(again->steps.size() == report->steps.size());
  KR_CHECK(EncodeReport(*again) == encoded);
}

void CheckNext(std::string_view bytes) {
  const Result<NextGeneration> next = DecodeNext(bytes);
  if (!next.ok()) {
    KR_CHECK(next.status().code() == StatusCode::kUnavailable ||
             next.status().code() == StatusCode::kInternal);
    return;
  }
  KR_CHECK(next->rank >= 0 &&
           static_cast<size_t>(next->rank) < next->members.size());
  const std::string encoded = EncodeNext(*next);
  const Result<NextGeneration> again = DecodeNext(encoded);
  KR_CHECK(again.ok());
  KR_CHECK(EncodeNext(*again) == encoded);
}

void CheckWaiting(std::string_view bytes) {
  const std::optional<uint64_t> waiting = DecodeWaiting(bytes);
  if (!waiting) return;
  KR_CHECK(!DecodeReport(bytes).ok() && !DecodeNext(bytes).ok());
  KR_CHECK(DecodeWaiting(EncodeWaiting(*waiting)) == waiting);
}

void CheckOver(std::string_view bytes) {
  const std::optional<GenerationOver> over = DecodeOver(bytes);
  if (!over) return;
  KR_CHECK(!DecodeReport(bytes).ok() && !DecodeNext(bytes).ok());
  const std::string encoded = EncodeOver(over->generation, over->reason);
  KR_CHECK(DecodeOver(encoded)->reason == over->reason);
  KR_CHECK(DecodeOver(encoded)->generation == over->generation);
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace keras_ring;
  CheckReport(AsText(data, size));
  CheckNext(AsText(data, size));
  CheckWaiting(AsText(data, size));
  CheckOver(AsText(data, size));
  return 0;
}
