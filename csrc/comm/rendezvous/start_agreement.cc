#include "csrc/comm/rendezvous/start_agreement.h"

#include <algorithm>
#include <utility>

#include "csrc/comm/rendezvous/member_record.h"

namespace keras_ring {
namespace {

constexpr char kStartedPrefix[] = "started/";
// Ranks that give up at the deadline say so right after it.
constexpr Duration kWordGrace = std::chrono::milliseconds(500);
// The others wait this much longer than rank 0 for its verdict.
constexpr Duration kVerdictGrace = std::chrono::seconds(1);
// Ranks that are lost together are named together.
constexpr Duration kTroubleGrace = std::chrono::milliseconds(200);
// How long rank 0 stays for ranks that have not taken the verdict. A rank that
// can still take it has asked for it before.
constexpr Duration kVerdictLinger = std::chrono::milliseconds(300);
constexpr char kSilent[] =
    "nothing came from it within KERAS_RING_START_TIMEOUT; its process is "
    "stopped or its host or network is gone";

Status DecodeStatus(const std::string& bytes, Status* status) {
  JobTable table;
  if (!Decode(bytes, &table)) {
    return InternalError("a malformed word on the start in the store");
  }
  *status = table.status;
  return OkStatus();
}

std::string NameOf(int rank, const std::vector<Member>& members) {
  const Member& member = members[rank];
  return "rank " + std::to_string(rank) + " (host " + member.host + ", pid " +
         std::to_string(member.pid) + ")";
}

std::string Lost(int rank, const std::vector<Member>& members,
                 const std::string& why) {
  return "lost " + NameOf(rank, members) + " while the job started: " + why;
}

// Ranks that each have a name in an error; of more, numbers and hosts are told.
constexpr size_t kMaxNamed = 8;
constexpr size_t kMaxHosts = 4;

// `ranks`: in their order, at least one.
std::string AllLost(const std::vector<int>& ranks,
                    const std::vector<Member>& members,
                    const std::string& why) {
  std::string text;
  if (ranks.size() <= kMaxNamed) {
    for (int rank : ranks) {
      text += (text.empty() ? "" : "; ") + Lost(rank, members, why);
    }
    return text;
  }
  std::vector<std::string> hosts;
  for (int rank : ranks) {
    const std::string& host = members[rank].host;
    if (hosts.empty() || hosts.back() != host) hosts.push_back(host);
  }
  const size_t named = std::min(hosts.size(), kMaxHosts);
  for (size_t i = 0; i < named; ++i) text += (i == 0 ? "" : ", ") + hosts[i];
  if (hosts.size() > named) {
    text += " and " + std::to_string(hosts.size() - named) + " more";
  }
  return "lost " + RankNames(ranks) + " (" + std::to_string(ranks.size()) +
         " ranks, on " + text + ") while the job started, of each: " + why;
}

// Such an error may be a consequence of another rank's failure.
bool MayBeConsequence(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kDeadlineExceeded;
}

bool IsItsOwn(const Status& status) {
  return !status.ok() && !MayBeConsequence(status);
}

// The words of the others: all of them, or those that have come by the
// deadline, or soon after there was `trouble`.
Result<StoreEntries> HearWords(LocalStore& store, size_t others,
                               Deadline deadline, bool* trouble) {
  StoreEntries words;
  const auto feed = store.Follow(kStartedPrefix);
  Deadline soon(*trouble ? Deadline::After(kTroubleGrace).at()
                         : TimePoint::max());
  while (words.size() < others) {
    Result<LocalStore::Change> change =
        feed->Next(Deadline(std::min(deadline.at(), soon.at())));
    if (change.status().code() == StatusCode::kDeadlineExceeded) break;
    KR_RETURN_IF_ERROR(change.status());
    if (change->gone) continue;  // whose word counts, too
    if (!*trouble && IsFailure(change->key, change->value)) {
      *trouble = true;
      soon = Deadline::After(kTroubleGrace);
    }
    words[change->key] = std::move(change->value);
  }
  return words;
}

// On the rank itself its own trouble comes first.
Status Choose(const Status& own, const Status& verdict) {
  return own.ok() || MayBeConsequence(own) ? verdict : own;
}

}  // namespace

std::string StartedKey(int rank) {
  return kStartedPrefix + std::to_string(rank);
}

bool IsFailure(const std::string& key, const std::string& word) {
  if (!HasPrefix(key, kStartedPrefix)) return false;
  if (word.empty()) return true;
  Status said;
  return !DecodeStatus(word, &said).ok() || IsItsOwn(said);
}

Status StartVerdict(const StoreEntries& words,
                    const std::vector<Member>& members,
                    const Status& of_rank_zero, bool in_time) {
  std::vector<int> gone, silent;
  int failed = of_rank_zero.ok() ? -1 : 0;
  Status why = of_rank_zero;
  for (int rank = 1; rank < static_cast<int>(members.size()); ++rank) {
    auto word = words.find(StartedKey(rank));
    if (word == words.end()) {
      if (in_time) continue;
      silent.push_back(rank);
      continue;
    }
    if (word->second.empty()) {
      gone.push_back(rank);
      continue;
    }
    Status said;
    KR_RETURN_IF_ERROR(DecodeStatus(word->second, &said));
    if (said.ok()) continue;
    if (failed < 0 || (MayBeConsequence(why) && !MayBeConsequence(said))) {
      failed = rank;
      why = said;
    }
  }
  // A silent rank may itself still wait for one that has gone.
  if (!gone.empty()) {
    return UnavailableError(
        AllLost(gone, members, "its connection to rank 0 ended"));
  }
  if (!silent.empty()) {
    return UnavailableError(AllLost(silent, members, kSilent));
  }
  if (failed < 0) return OkStatus();
  return Status(why.code(),
                NameOf(failed, members) + " could not start: " + why.message());
}

// In the store a status is a table without members.
std::string EncodeVerdict(const Status& verdict) {
  JobTable table;
  table.status = verdict;
  return Encode(table);
}

Status LostAtStart(int rank, const std::vector<Member>& members,
                   const std::string& why) {
  return UnavailableError(Lost(rank, members, why));
}

Status AgreeAsRankZero(TcpStoreServer& server,
                       const std::vector<Member>& members, const Status& own,
                       Deadline deadline) {
  LocalStore& store = server.store();
  const Deadline patient(deadline.at() + kWordGrace);
  bool trouble = IsItsOwn(own);
  KR_ASSIGN_OR_RETURN(const StoreEntries words,
                      HearWords(store, members.size() - 1, patient, &trouble));
  const Status verdict = StartVerdict(words, members, own, /*in_time=*/trouble);
  KR_RETURN_IF_ERROR(store.Set(kVerdictKey, EncodeVerdict(verdict), patient));
  if (verdict.ok()) return verdict;
  server.WaitUntilAlone(Deadline::After(kVerdictLinger));
  server.Stop(Duration::zero());
  return Choose(own, verdict);
}

uint64_t AskForVerdict(TcpStoreClient& store) {
  return store.BeginList(kVerdictKey, 1);
}

Status AgreeAsOther(TcpStoreClient& store, uint64_t asked, int rank,
                    int through, const std::vector<Member>& members,
                    const Status& own, Deadline deadline) {
  const Deadline patient(deadline.at() + kWordGrace + kVerdictGrace);
  // The verdict may be there: then no rank waits for this one's report.
  Result<StoreEntries> entries =
      store.EndList(asked, Deadline::After(Duration::zero()));
  if (entries.status().code() == StatusCode::kDeadlineExceeded) {
    // Where that fails, the verdict may have come before the connection went.
    (void)store.Set(StartedKey(rank), EncodeVerdict(own), patient);
    entries = store.EndList(asked, patient);
  }
  Status verdict;
  const Status told = entries.ok()
                          ? DecodeStatus(entries->begin()->second, &verdict)
                          : entries.status();
  if (told.ok()) return Choose(own, verdict);
  if (told.code() != StatusCode::kDeadlineExceeded) {
    return Choose(own, LostAtStart(through, members, told.message()));
  }
  // A relay that answers waits for rank 0 itself.
  const bool waits_itself = through != 0 && store.Answers();
  return Choose(own, LostAtStart(waits_itself ? 0 : through, members, kSilent));
}

}  // namespace keras_ring
