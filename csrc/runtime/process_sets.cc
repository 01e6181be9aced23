#include "csrc/runtime/process_sets.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "csrc/comm/rendezvous.h"
#include "csrc/runtime/gather_texts.h"

namespace keras_ring {
namespace {

// Names of exchanges, as a report of a stall shows them.
constexpr char kCallName[] = "add_process_set or remove_process_set";
constexpr char kMadeName[] = "add_process_set: are all members connected";

std::string ListText(const std::vector<int32_t>& ranks) {
  std::string text;
  for (int32_t rank : ranks) {
    if (!text.empty()) text += ", ";
    text += std::to_string(rank);
  }
  return "[" + text + "]";
}

}  // namespace

ProcessSets::ProcessSets(std::shared_ptr<Runtime> job, Connect connect)
    : job_(std::move(job)), connect_(std::move(connect)) {
  // `this` is good for as long as the job's loop runs: Shutdown ends that.
  job_->SetBrokenListener([this](const Status& cause) { OnJobBroken(cause); });
}

ProcessSets::~ProcessSets() { Shutdown("its runtime being destroyed"); }

Status ProcessSets::AgreeOn(const std::string& call) {
  KR_ASSIGN_OR_RETURN(std::vector<std::string> calls,
                      GatherTexts(*job_, kCallName, call));
  std::map<std::string, std::vector<int32_t>> ranks_of_call;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    ranks_of_call[calls[rank]].push_back(static_cast<int32_t>(rank));
  }
  if (ranks_of_call.size() == 1) return OkStatus();
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
  const std::string what = "process set " + ListText(ranks);
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
  KR_RETURN_IF_ERROR(AgreeOn("add_process_set(" + ListText(ranks) + ")"));
  KR_RETURN_IF_ERROR(Check(ranks));

  const RankSet set(next_number_++, std::move(ranks));
  Result<RuntimeDeps> deps = RuntimeDeps();
  const bool is_member = set.Local(job_->topology().rank) >= 0;
  if (is_member) deps = connect_(set);
  // No member may start before all are connected: where one fails, the others
  // must not take it for lost.
  KR_ASSIGN_OR_RETURN(
      std::vector<std::string> failures,
      GatherTexts(*job_, kMadeName, deps.ok() ? "" : deps.status().message()));
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    return UnavailableError(set.Text() + " could not be made: rank " +
                            std::to_string(rank) + ": " + failures[rank]);
  }
  KR_RETURN_IF_ERROR(Insert(
      set, is_member ? Runtime::Start(std::move(deps).value()) : nullptr));
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
      AgreeOn("remove_process_set(" + std::to_string(number) + ")"));
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
  const bool removed = number > 0 && number <= last_number_;
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
