#include "csrc/comm/rendezvous/member_record.h"

#include <algorithm>
#include <map>
#include <set>

#include "csrc/base/digest_text.h"
#include "csrc/base/wire.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxTextBytes = 64 << 10;
// What the ranks compare. More of it would not make an error clearer.
constexpr size_t kMaxFingerprintBytes = 4096;
constexpr uint64_t kMaxSize = INT32_MAX;
constexpr uint64_t kMaxMilliseconds = uint64_t{1} << 40;  // 30 years

void WriteMember(WireWriter& writer, const Member& member) {
  writer.Text(member.host_id);
  writer.Text(member.host);
  writer.Text(member.address);
  writer.Varint(member.port);
  writer.SignedVarint(member.pid);
}

std::string ReadText(WireReader& reader) {
  return std::string(reader.Text(kMaxTextBytes));
}

Member ReadMember(WireReader& reader) {
  Member member;
  member.host_id = ReadText(reader);
  member.host = ReadText(reader);
  member.address = ReadText(reader);
  uint64_t port = reader.Varint();
  if (port > UINT16_MAX) reader.Fail();
  member.port = static_cast<uint16_t>(port);
  member.pid = reader.SignedVarint();
  return member;
}

std::string Process(const MemberRecord& record) {
  return "process " + std::to_string(record.member.pid) + " on " +
         record.member.host;
}

// Property -> value -> ranks. A property that a rank does not name has the
// value "(none)" there.
using Values = std::map<std::string, std::vector<int>>;
std::map<std::string, Values> GroupByValue(
    const std::vector<MemberRecord>& records) {
  std::map<std::string, std::map<int, std::string>> by_name;
  for (const MemberRecord& record : records) {
    for (const std::string& item : record.fingerprint) {
      size_t equals = item.find('=');
      by_name[item.substr(0, equals)][record.rank] =
          equals == std::string::npos ? "" : item.substr(equals + 1);
    }
  }
  std::map<std::string, Values> grouped;
  for (const auto& [name, value_of] : by_name) {
    for (const MemberRecord& record : records) {
      auto it = value_of.find(record.rank);
      grouped[name][it == value_of.end() ? "(none)" : it->second].push_back(
          record.rank);
    }
  }
  return grouped;
}

// "rank 0 has '2.21', ranks 1-3 have '2.20'", lowest rank first.
std::string DescribeValues(const Values& values) {
  std::vector<std::pair<std::vector<int>, std::string>> groups;
  for (const auto& [value, ranks] : values) groups.emplace_back(ranks, value);
  std::sort(groups.begin(), groups.end());
  std::string text;
  for (const auto& [ranks, value] : groups) {
    if (!text.empty()) text += ", ";
    text += RankNames(ranks) + (ranks.size() == 1 ? " has '" : " have '") +
            value + "'";
  }
  return text;
}

}  // namespace

std::string JoinKey(const MemberRecord& record) {
  return kMemberPrefix + std::to_string(record.rank) + "/" +
         std::to_string(record.target);
}

std::string Encode(const MemberRecord& record) {
  WireWriter writer;
  writer.Varint(static_cast<uint64_t>(record.rank));
  writer.Varint(static_cast<uint64_t>(record.size));
  WriteMember(writer, record.member);
  writer.Fixed64(record.target);
  writer.Varint(record.fingerprint.size());
  for (const std::string& item : record.fingerprint) {
    writer.Text(DigestText(item, kMaxFingerprintBytes));
  }
  return writer.Take();
}

bool Decode(std::string_view bytes, MemberRecord* record) {
  WireReader reader(bytes);
  uint64_t rank = reader.Varint();
  uint64_t size = reader.Varint();
  record->member = ReadMember(reader);
  record->target = reader.Fixed64();
  size_t count = reader.Count(1);
  record->fingerprint.clear();
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    record->fingerprint.push_back(ReadText(reader));
  }
  record->rank = static_cast<int>(rank);
  record->size = static_cast<int>(size);
  return reader.Finished() && rank < size && size <= kMaxSize;
}

std::string Encode(const JobTable& table) {
  WireWriter writer;
  writer.Byte(static_cast<uint8_t>(table.status.code()));
  writer.Text(table.status.message());
  writer.Varint(static_cast<uint64_t>(
      std::chrono::floor<std::chrono::milliseconds>(table.time_left).count()));
  writer.Varint(table.members.size());
  for (size_t rank = 0; rank < table.members.size(); ++rank) {
    WriteMember(writer, table.members[rank]);
    writer.Fixed64(table.targets[rank]);
  }
  return writer.Take();
}

bool Decode(std::string_view bytes, JobTable* table) {
  WireReader reader(bytes);
  const StatusCode code = StatusCodeOf(reader.Byte());
  std::string message(reader.Text(bytes.size()));
  table->status =
      code == StatusCode::kOk ? OkStatus() : Status(code, std::move(message));
  const uint64_t milliseconds = reader.Varint();
  // More than that does not fit into a duration.
  if (milliseconds > kMaxMilliseconds) return false;
  table->time_left = std::chrono::milliseconds(milliseconds);
  // A member takes at least its five lengths and eight bytes.
  size_t count = reader.Count(13);
  table->members.clear();
  table->targets.clear();
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    table->members.push_back(ReadMember(reader));
    table->targets.push_back(reader.Fixed64());
  }
  return reader.Finished();
}

Result<std::vector<MemberRecord>> DecodeRecords(const StoreEntries& entries) {
  std::vector<MemberRecord> records;
  for (const auto& [key, value] : entries) {
    records.emplace_back();
    if (!Decode(value, &records.back())) {
      return InternalError("a malformed record '" + key + "' in the store");
    }
  }
  std::stable_sort(records.begin(), records.end(),
                   [](const MemberRecord& a, const MemberRecord& b) {
                     return a.rank < b.rank;
                   });
  return records;
}

Status CheckRanks(const std::vector<MemberRecord>& records, int size) {
  for (const MemberRecord& record : records) {
    if (record.size != size) {
      return InvalidArgumentError(
          "the ranks differ in the size of the job: rank 0 has " +
          std::to_string(size) + ", rank " + std::to_string(record.rank) +
          " (" + Process(record) + ") has " + std::to_string(record.size));
    }
  }
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].rank == records[i - 1].rank) {
      return InvalidArgumentError(
          "two processes have rank " + std::to_string(records[i].rank) + ": " +
          Process(records[i - 1]) + " and " + Process(records[i]));
    }
  }
  return OkStatus();
}

Status CompareFingerprints(const std::vector<MemberRecord>& records) {
  std::string text;
  for (const auto& [name, values] : GroupByValue(records)) {
    if (values.size() == 1) continue;
    text += (text.empty() ? "" : "; ") + std::string("'") + name +
            "': " + DescribeValues(values);
  }
  if (text.empty()) return OkStatus();
  return FailedPreconditionError("the ranks differ in " + text);
}

Status MissingRanks(const std::vector<MemberRecord>& records, int size) {
  std::set<int> present;
  for (const MemberRecord& record : records) present.insert(record.rank);
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (present.count(rank) == 0) missing.push_back(rank);
  }
  if (missing.empty()) {
    return DeadlineExceededError("rank 0 gave no verdict in time");
  }
  return DeadlineExceededError(
      RankNames(missing) + " of " + std::to_string(size) +
      " did not join in time" +
      (present.empty()
           ? std::string()
           : " (" + RankNames({present.begin(), present.end()}) + " did)"));
}

JobTable MakeTable(const std::vector<MemberRecord>& records) {
  JobTable table;
  for (const MemberRecord& record : records) {
    table.members.push_back(record.member);
    table.targets.push_back(record.target);
  }
  return table;
}

std::string RankNames(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace keras_ring
