#include "csrc/runtime/process_sets.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "csrc/base/digest_text.h"
#include "csrc/base/sha256.h"
#include "csrc/base/wire.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/runtime/allgather_strings.h"

namespace keras_ring {
namespace {

// Names of exchanges, as a report of a stall shows them.
constexpr char kCallName[] = "add_process_set or remove_process_set";
constexpr char kDifferenceName[] =
    "add_process_set or remove_process_set: which ranks call what";
constexpr char kMadeName[] = "add_process_set: are all members connected";

// The length of texts that ranks compare is limited: all send them to all.
constexpr size_t kMaxCallBytes = 1024;

std::string ListText(const std::vector<int32_t>& ranks) {
  std::string text;
  for (int32_t rank : ranks) {
    if (!text.empty()) text += ", ";
    text += std::to_string(rank);
  }
  return "[" + text + "]";
}

std::string CallText(const std::vector<std::vector<int32_t>>& lists) {
  if (lists.size() == 1) {
    return "add_process_set(" + ListText(lists.front()) + ")";
  }
  std::string text;
  for (const std::vector<int32_t>& ranks : lists) {
    text += (text.empty() ? "" : ", ") + ListText(ranks);
  }
  return "add_process_sets([" + text + "])";
}

// For errors: of many ranks the first and the last.
std::string ShortListText(const std::vector<int32_t>& ranks) {
  constexpr size_t kShown = 16;
  if (ranks.size() <= kShown) return ListText(ranks);
  std::string text = ListText({ranks.begin(), ranks.begin() + kShown / 2});
  text.back() = ',';
  return text + " ..., " + std::to_string(ranks.back()) + "] of " +
         std::to_string(ranks.size()) + " ranks";
}

// One rank's part in a change. That all make the same call, a digest tells.
struct Change {
  std::string digest;
  uint32_t free_number = 0;
};

std::string EncodeChange(const Change& change) {
  WireWriter writer;
  writer.Varint(change.free_number);
  writer.Text(change.digest);
  return writer.Take();
}

Result<Change> DecodeChange(const std::string& bytes) {
  WireReader reader(bytes);
  const uint64_t number = reader.Varint();
  Change change;
  change.digest = std::string(reader.Text(bytes.size()));
  change.free_number = static_cast<uint32_t>(number);
  if (!reader.Finished() || number > UINT32_MAX) {
    return InternalError("a malformed change of process sets");
  }
  return change;
}

// The reason why a member could not connect, and the set it belongs to.
struct Failure {
  size_t index = 0;
  std::string why;  // empty: nothing did
};

std::string EncodeFailure(const Failure& failure) {
  if (failure.why.empty()) return "";
  WireWriter writer;
  writer.Varint(failure.index);
  writer.Text(failure.why);
  return writer.Take();
}

Result<Failure> DecodeFailure(const std::string& bytes, size_t num_sets) {
  Failure failure;
  if (bytes.empty()) return failure;
  WireReader reader(bytes);
  failure.index = reader.Varint();
  failure.why = std::string(reader.Text(bytes.size()));
  if (!reader.Finished() || failure.index >= num_sets) {
    return InternalError("a malformed failure of a process set");
  }
  return failure;
}

}  // namespace

ProcessSets::ProcessSets(std::shared_ptr<Runtime> job, Connect connect,
                         SetNumbers& numbers)
    : job_(std::move(job)),
      connect_(std::move(connect)),
      numbers_(numbers),
      first_number_(numbers.next()) {
  // `this` is good for as long as the job's loop runs: Shutdown ends that.
  job_->SetBrokenListener([this](const Status& cause) { OnJobBroken(cause); });
}

ProcessSets::~ProcessSets() { Shutdown("its runtime being destroyed"); }

Result<uint32_t> ProcessSets::AgreeOn(const std::string& call) {
  const Change own{std::string(AsBytes(Sha256Of(call))), numbers_.next()};
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> changes,
                      AllgatherStrings(*job_, kCallName, EncodeChange(own)));
  uint32_t number = 0;
  std::set<std::string> digests;
  for (const std::string& bytes : changes) {
    KR_ASSIGN_OR_RETURN(const Change change, DecodeChange(bytes));
    number = std::max(number, change.free_number);
    digests.insert(change.digest);
  }
  if (digests.size() > 1) return Difference(call);
  return number;
}

Status ProcessSets::Difference(const std::string& call) {
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> calls,
                      AllgatherStrings(*job_, kDifferenceName,
                                       DigestText(call, kMaxCallBytes)));
  std::map<std::string, std::vector<int32_t>> ranks_of_call;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    ranks_of_call[calls[rank]].push_back(static_cast<int32_t>(rank));
  }
  std::string text = "the ranks change process sets in different ways:";
  for (const auto& [each, ranks] : ranks_of_call) {
    text += " " + RanksText(ranks) + (ranks.size() > 1 ? " call " : " calls ") +
            each + ";";
  }
  text.back() = '.';
  return FailedPreconditionError(
      text +
      " Every rank of the job must make the same calls in the same order, "
      "whether it is a member or not.");
}

Status ProcessSets::Check(const std::vector<int32_t>& ranks) const {
  const std::string what = "process set " + ShortListText(ranks);
  const int32_t size = job_->topology().size;
  if (ranks.empty()) {
    return InvalidArgumentError("a process set must have at least one rank");
  }
  if (ranks.front() < 0 || ranks.back() >= size) {
    return InvalidArgumentError(what + ": the ranks of this job are 0 to " +
                                std::to_string(size - 1));
  }
  if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
    return InvalidArgumentError(what + ": a rank is in it more than once");
  }
  if (static_cast<int32_t>(ranks.size()) == size) {
    return InvalidArgumentError(
        what + ": all ranks of the job are the global process set (0)");
  }
  MutexLock lock(mutex_);
  for (const auto& [number, set] : sets_) {
    if (set.ranks.members() != ranks) continue;
    return InvalidArgumentError(what + ": exists already, as process set " +
                                std::to_string(number));
  }
  return OkStatus();
}

Result<std::vector<uint32_t>> ProcessSets::NumbersFrom(uint32_t number,
                                                       size_t count) const {
  std::set<int> tags;
  {
    MutexLock lock(mutex_);
    for (const auto& [living, set] : sets_) tags.insert(set.ranks.tag());
  }
  if (tags.size() + count > RankSet::kMaxTag) {
    return ResourceExhaustedError(
        "there are " + std::to_string(tags.size()) + " process sets, and " +
        std::to_string(count) + " more were to be added: at most " +
        std::to_string(RankSet::kMaxTag) +
        " may exist at the same time; remove those that are not needed");
  }
  std::vector<uint32_t> numbers;
  for (; numbers.size() < count; ++number) {
    if (tags.insert(RankSet::TagOf(number)).second) numbers.push_back(number);
  }
  return numbers;
}

Result<uint32_t> ProcessSets::Add(std::vector<int32_t> ranks) {
  KR_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                      AddAll({std::move(ranks)}));
  return numbers.front();
}

Result<std::vector<uint32_t>> ProcessSets::AddAll(
    std::vector<std::vector<int32_t>> lists) {
  MutexLock change(change_mutex_);
  for (std::vector<int32_t>& ranks : lists) {
    std::sort(ranks.begin(), ranks.end());
  }
  KR_ASSIGN_OR_RETURN(const uint32_t free, AgreeOn(CallText(lists)));
  std::vector<RankSet> sets;
  for (auto ranks = lists.begin(); ranks != lists.end(); ++ranks) {
    KR_RETURN_IF_ERROR(Check(*ranks));
    if (std::find(lists.begin(), ranks, *ranks) != ranks) {
      return InvalidArgumentError("process set " + ShortListText(*ranks) +
                                  ": is among these more than once");
    }
  }
  if (lists.empty()) return std::vector<uint32_t>();
  KR_ASSIGN_OR_RETURN(const std::vector<uint32_t> numbers,
                      NumbersFrom(free, lists.size()));
  numbers_.Take(numbers.back());
  for (size_t i = 0; i < lists.size(); ++i) {
    sets.emplace_back(numbers[i], std::move(lists[i]));
  }
  KR_ASSIGN_OR_RETURN(std::vector<std::optional<RuntimeDeps>> deps,
                      ConnectAll(sets));
  std::vector<Member> made;
  for (size_t i = 0; i < sets.size(); ++i) {
    made.push_back(Member{sets[i], nullptr});
    if (!deps[i]) continue;
    KR_ASSIGN_OR_RETURN(made.back().runtime,
                        Runtime::Start(*std::move(deps[i])));
  }
  KR_RETURN_IF_ERROR(Insert(std::move(made)));
  return numbers;
}

Result<std::vector<std::optional<RuntimeDeps>>> ProcessSets::ConnectAll(
    const std::vector<RankSet>& sets) {
  const RuntimeDeps& of_job = job_->deps();
  // For all of them: where one rank fails with all, the others do not wait for
  // it as often.
  const Deadline deadline =
      Deadline::AfterSeconds(of_job.options.start_timeout);
  std::vector<std::optional<RuntimeDeps>> deps(sets.size());
  Failure own;
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].Local(job_->topology().rank) < 0) continue;
    Result<RuntimeDeps> connected = connect_(sets[i], deadline);
    if (connected.ok()) {
      deps[i] = std::move(connected).value();
    } else if (own.why.empty()) {
      own = {i, connected.status().message()};
    }
  }
  // No member may start before all are connected: where one fails, the others
  // must not take it for lost.
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> failures,
                      AllgatherStrings(*job_, kMadeName, EncodeFailure(own)));
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    KR_ASSIGN_OR_RETURN(const Failure failure,
                        DecodeFailure(failures[rank], sets.size()));
    if (failure.why.empty()) continue;
    return UnavailableError(
        sets[failure.index].Text() + " could not be made: rank " +
        std::to_string(rank) + ": " + failure.why +
        (sets.size() > 1
             ? ". So none of these " + std::to_string(sets.size()) + " sets was"
             : std::string()));
  }
  return deps;
}

Status ProcessSets::Insert(std::vector<Member> made) {
  Status broken;
  bool late;
  {
    MutexLock lock(mutex_);
    broken = broken_;
    late = shut_down_;
    for (const Member& member : made) {
      if (late) break;
      sets_[member.ranks.number()] = member;
      last_number_ = member.ranks.number();
    }
  }
  for (const Member& member : made) {
    if (member.runtime == nullptr) continue;
    if (late) {
      member.runtime->Shutdown("");
    } else if (!broken.ok()) {
      member.runtime->Break(broken);
    }
  }
  return late ? UnavailableError("this rank has shut down") : broken;
}

Status ProcessSets::Remove(int64_t number) {
  MutexLock change(change_mutex_);
  KR_RETURN_IF_ERROR(
      AgreeOn("remove_process_set(" + std::to_string(number) + ")").status());
  if (number == 0) {
    return InvalidArgumentError(
        "process set 0 is the job itself and cannot be removed");
  }
  std::shared_ptr<Runtime> runtime;
  {
    MutexLock lock(mutex_);
    const auto it = sets_.find(number);
    if (it == sets_.end()) {
      return InvalidArgumentError(NoSuchSet(number).message());
    }
    runtime = std::move(it->second.runtime);
    sets_.erase(it);
  }
  if (runtime) runtime->Shutdown("");
  return OkStatus();
}

Status ProcessSets::NoSuchSet(int64_t number) const {
  if (number < 0) {
    return FailedPreconditionError(
        "this process set was not added, or has been removed");
  }
  if (number < first_number_) {
    return FailedPreconditionError(
        "process set " + std::to_string(number) +
        " was of a job that is over: shutdown() was called since. Add it to "
        "this job (`init(process_sets=[...])` or `add_process_set`), and trace "
        "anew what was traced with it: compile the model, or make the "
        "`tf.function`, again");
  }
  const bool removed = number <= last_number_;
  return FailedPreconditionError(
      "process set " + std::to_string(number) +
      (removed ? " has been removed" : " does not exist in this job"));
}

Result<RankSet> ProcessSets::Find(int64_t number) const {
  if (number == 0) {
    std::vector<int32_t> all(job_->topology().size);
    std::iota(all.begin(), all.end(), 0);
    return RankSet(0, std::move(all));
  }
  MutexLock lock(mutex_);
  const auto it = sets_.find(number);
  if (it == sets_.end()) return NoSuchSet(number);
  return it->second.ranks;
}

Result<std::shared_ptr<Runtime>> ProcessSets::RuntimeOf(int64_t number) const {
  if (number == 0) return job_;
  MutexLock lock(mutex_);
  const auto it = sets_.find(number);
  if (it == sets_.end()) return NoSuchSet(number);
  if (it->second.runtime == nullptr) {
    return InvalidArgumentError(
        "rank " + std::to_string(job_->topology().rank) +
        " is not a member of " + it->second.ranks.Text());
  }
  return it->second.runtime;
}

void ProcessSets::OnJobBroken(const Status& cause) {
  std::vector<std::shared_ptr<Runtime>> runtimes;
  {
    MutexLock lock(mutex_);
    broken_ = cause;
    for (const auto& [number, set] : sets_) {
      if (set.runtime) runtimes.push_back(set.runtime);
    }
  }
  for (const auto& runtime : runtimes) runtime->Break(cause);
  // A change may wait for a rank that will not come.
  if (const auto& mesh = job_->deps().mesh) mesh->Abort(cause);
}

void ProcessSets::WriteFlightLogs(const std::string& reason) const {
  std::vector<std::shared_ptr<Runtime>> runtimes = {job_};
  {
    MutexLock lock(mutex_);
    for (const auto& [number, set] : sets_) {
      if (set.runtime != nullptr) runtimes.push_back(set.runtime);
    }
  }
  for (const auto& runtime : runtimes) runtime->WriteFlightLog(reason);
}

void ProcessSets::Shutdown(const std::string& reason) {
  std::vector<std::shared_ptr<Runtime>> runtimes;
  {
    MutexLock lock(mutex_);
    shut_down_ = true;
    for (const auto& [number, set] : sets_) {
      if (set.runtime) runtimes.push_back(set.runtime);
    }
  }
  if (const auto& mesh = job_->deps().mesh) {
    mesh->Abort(UnavailableError("this rank has shut down"));
  }
  for (const auto& runtime : runtimes) runtime->Shutdown(reason);
  job_->Shutdown(reason);
}

}  // namespace keras_ring
