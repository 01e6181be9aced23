// Join records and job tables, alone and as the entries of a store.
#include "csrc/comm/rendezvous/member_record.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/script.h"

namespace keras_ring {
namespace {

void CheckRecord(std::string_view bytes) {
  MemberRecord record;
  if (!Decode(bytes, &record)) return;
  KR_CHECK(record.size >= 1 && record.rank >= 0 && record.rank < record.size);
  const std::string encoded = Encode(record);
  MemberRecord again;
  KR_CHECK(Decode(encoded, &again));
  KR_CHECK(Encode(again) == encoded);
}

void CheckTable(std::string_view bytes) {
  JobTable table;
  if (!Decode(bytes, &table)) return;
  KR_CHECK(table.members.size() == table.targets.size());
  KR_CHECK(table.status.ToString().find("UNKNOWN") != 0);
  const std::string encoded = Encode(table);
  JobTable again;
  KR_CHECK(Decode(encoded, &again));
  KR_CHECK(again.status == table.status);
  KR_CHECK(Encode(again) == encoded);
}

// As rank 0 judges over them.
void CheckRecords(std::string_view bytes) {
  Script script(bytes);
  const int size = 1 + script.Choice(8);
  MemberRecords coming(size);
  for (int i = 0; !script.AtEnd() && i < 16; ++i) {
    const std::string key = kMemberPrefix + std::to_string(i);
    if (!coming.Add(key, script.Text()).ok()) return;
  }
  KR_CHECK(!coming.Missing().ok());
  if (!coming.complete()) return;
  const std::vector<MemberRecord> records = coming.Take();
  KR_CHECK(records.size() == static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    KR_CHECK(records[rank].rank == rank);
  }
  const Status same = CompareFingerprints(records);
  KR_CHECK(same.ok() || same.code() == StatusCode::kFailedPrecondition);
  JobTable read;
  KR_CHECK(Decode(Encode(MakeTable(records)), &read));
  KR_CHECK(read.members.size() == static_cast<size_t>(size));
}

}  // namespace
}  // namespace keras_ring

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace keras_ring;
  Script script(AsText(data, size));
  const int kind = script.Choice(3);
  const std::string_view bytes = script.Rest();
  if (kind == 0) CheckRecord(bytes);
  if (kind == 1) CheckTable(bytes);
  if (kind == 2) CheckRecords(bytes);
  return 0;
}
