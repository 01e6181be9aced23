#include "csrc/runtime/process_sets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/base/digest_text.h"
#include "csrc/base/wire.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/runtime/allgather_strings.h"

namespace keras_ring {
namespace {

// Names of exchanges, as a report of a stall shows them.
constexpr char kCallName[] = "add_process_set or remove_process_set";
constexpr char kMadeName[] = "add_process_set: are all members connected";

// What ranks compare is not sent at any length: all send it to all.
constexpr size_t kMaxCallBytes = 1024;

std::string ListText(const std::vector<int32_t>& ranks) {
  std::string text;
  for (int32_t rank : ranks) {
    if (!text.empty()) text += ", ";
    text += std::to_string(rank);
  }
  return "[" + text + "]";
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

// One rank's part in a change.
struct Change {
  std::string call;
  uint32_t free_number = 0;
};

std::string EncodeChange(const Change& change) {
  WireWriter writer;
  writer.Varint(change.free_number);
  writer.Text(DigestText(change.call, kMaxCallBytes));
  return writer.Take();
}

Result<Change> DecodeChange(const std::string& bytes) {
  WireReader reader(bytes);
  const uint64_t number = reader.Varint();
  Change change;
  change.call = std::string(reader.Text(bytes.size()));
  change.free_number = static_cast<uint32_t>(number);
  if (!reader.Finished() || number > UINT32_MAX) {
    return InternalError("a malformed change of process sets");
  }
  return change;
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
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> changes,
                      AllgatherStrings(*job_, kCallName,
                                       EncodeChange({call, numbers_.next()})));
  std::map<std::string, std::vector<int32_t>> ranks_of_call;
  uint32_t number = 0;
  for (size_t rank = 0; rank < changes.size(); ++rank) {
    KR_ASSIGN_OR_RETURN(const Change change, DecodeChange(changes[rank]));
    ranks_of_call[change.call].push_back(static_cast<int32_t>(rank));
    number = std::max(number, change.free_number);
  }
  if (ranks_of_call.size() == 1) return number;
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

Result<uint32_t> ProcessSets::Add(std::vector<int32_t> ranks) {
  MutexLock change(change_mutex_);
  std::sort(ranks.begin(), ranks.end());
  KR_ASSIGN_OR_RETURN(const uint32_t number,
                      AgreeOn("add_process_set(" + ListText(ranks) + ")"));
  KR_RETURN_IF_ERROR(Check(ranks));

  numbers_.Take(number);
  const RankSet set(number, std::move(ranks));
  Result<RuntimeDeps> deps = RuntimeDeps();
  const bool is_member = set.Local(job_->topology().rank) >= 0;
  if (is_member) deps = connect_(set);
  // No member may start before all are connected: where one fails, the others
  // must not take it for lost.
  KR_ASSIGN_OR_RETURN(
      std::vector<std::string> failures,
      AllgatherStrings(*job_, kMadeName,
                       deps.ok() ? "" : deps.status().message()));
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    return UnavailableError(set.Text() + " could not be made: rank " +
                            std::to_string(rank) + ": " + failures[rank]);
  }
  std::shared_ptr<Runtime> runtime;
  if (is_member) {
    KR_ASSIGN_OR_RETURN(runtime, Runtime::Start(std::move(deps).value()));
  }
  KR_RETURN_IF_ERROR(Insert(set, std::move(runtime)));
  return set.number();
}

Status ProcessSets::Insert(const RankSet& set,
                           std::shared_ptr<Runtime> runtime) {
  Status broken;
  bool late;
  {
    MutexLock lock(mutex_);
    broken = broken_;
    late = shut_down_;
    if (!late) {
      sets_[set.number()] = Member{set, runtime};
      last_number_ = set.number();
    }
  }
  if (late) {
    if (runtime) runtime->Shutdown("");
    return UnavailableError("this rank has shut down");
  }
  if (!broken.ok() && runtime) runtime->Break(broken);
  return broken;
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
