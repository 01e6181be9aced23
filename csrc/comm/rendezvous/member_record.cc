#include "csrc/comm/rendezvous/member_record.h"

#include <algorithm>
#include <map>
#include <utility>

#include "csrc/base/digest_text.h"
#include "csrc/base/wire.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxTextBytes = 64 << 10;
// The limit of a text that may be repeated for each member.
constexpr size_t kMaxSharedTextBytes = 1 << 10;
// The limit of the fingerprint's bytes. More would not make an error clearer.
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

void ReadProcess(WireReader& reader, Member& member) {
  uint64_t port = reader.Varint();
  if (port > UINT16_MAX) reader.Fail();
  member.port = static_cast<uint16_t>(port);
  member.pid = reader.SignedVarint();
}

Member ReadMember(WireReader& reader) {
  Member member;
  member.host_id = ReadText(reader);
  member.host = ReadText(reader);
  member.address = ReadText(reader);
  ReadProcess(reader, member);
  return member;
}

// Texts that many members share, sent once each.
class TextTable {
 public:
  size_t NumberOf(const std::string& text) {
    const auto [it, is_new] = numbers_.try_emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return it->second;
  }
  void Write(WireWriter& writer) const {
    writer.Varint(texts_.size());
    for (const std::string& text : texts_) writer.Text(text);
  }
  void Read(WireReader& reader) {
    const size_t count = reader.Count(1);
    for (size_t i = 0; i < count && reader.ok(); ++i) {
      texts_.emplace_back(reader.Text(kMaxSharedTextBytes));
    }
  }
  // Reads a number, and returns the text that it stands for.
  std::string ReadOne(WireReader& reader) const {
    const uint64_t number = reader.Varint();
    if (number < texts_.size()) return texts_[number];
    reader.Fail();
    return "";
  }

 private:
  std::vector<std::string> texts_;
  std::map<std::string, size_t> numbers_;
};

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
  TextTable host_ids, hosts, addresses;
  WireWriter members;
  members.Varint(table.members.size());
  for (size_t rank = 0; rank < table.members.size(); ++rank) {
    const Member& member = table.members[rank];
    members.Varint(host_ids.NumberOf(member.host_id));
    members.Varint(hosts.NumberOf(member.host));
    members.Varint(addresses.NumberOf(member.address));
    members.Varint(member.port);
    members.SignedVarint(member.pid);
    members.Fixed64(table.targets[rank]);
  }
  for (const TextTable* texts : {&host_ids, &hosts, &addresses}) {
    texts->Write(writer);
  }
  return writer.Take() + members.Take();
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
  TextTable host_ids, hosts, addresses;
  for (TextTable* texts : {&host_ids, &hosts, &addresses}) texts->Read(reader);
  // A member takes at least five numbers and eight bytes.
  size_t count = reader.Count(13);
  table->members.clear();
  table->targets.clear();
  for (size_t i = 0; i < count && reader.ok(); ++i) {
    Member member;
    member.host_id = host_ids.ReadOne(reader);
    member.host = hosts.ReadOne(reader);
    member.address = addresses.ReadOne(reader);
    ReadProcess(reader, member);
    table->members.push_back(std::move(member));
    table->targets.push_back(reader.Fixed64());
  }
  return reader.Finished();
}

Status MemberRecords::Add(const std::string& key, std::string_view bytes) {
  MemberRecord record;
  if (!Decode(bytes, &record)) {
    return InternalError("a malformed record '" + key + "' in the store");
  }
  const int rank = record.rank;
  if (record.size != size_) {
    return InvalidArgumentError(
        "the ranks differ in the size of the job: rank 0 has " +
        std::to_string(size_) + ", rank " + std::to_string(rank) + " (" +
        Process(record) + ") has " + std::to_string(record.size));
  }
  ranks_[key] = rank;
  const auto [it, is_new] = by_rank_.try_emplace(rank, std::move(record));
  if (is_new) return OkStatus();
  return InvalidArgumentError("two processes have rank " +
                              std::to_string(rank) + ": " +
                              Process(it->second) + " and " + Process(record));
}

void MemberRecords::Remove(const std::string& key) {
  auto it = ranks_.find(key);
  if (it == ranks_.end()) return;
  by_rank_.erase(it->second);
  ranks_.erase(it);
}

std::vector<MemberRecord> MemberRecords::Take() {
  std::vector<MemberRecord> records;
  records.reserve(by_rank_.size());
  for (auto& [rank, record] : by_rank_) records.push_back(std::move(record));
  by_rank_.clear();
  ranks_.clear();
  return records;
}

Status MemberRecords::Missing() const {
  std::vector<int> missing, present;
  for (int rank = 0; rank < size_; ++rank) {
    (by_rank_.count(rank) == 0 ? missing : present).push_back(rank);
  }
  if (missing.empty()) {
    return DeadlineExceededError("rank 0 gave no verdict in time");
  }
  return DeadlineExceededError(
      RankNames(missing) + " of " + std::to_string(size_) +
      " did not join in time" +
      (present.empty() ? std::string()
                       : " (" + RankNames(std::move(present)) + " did)"));
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
