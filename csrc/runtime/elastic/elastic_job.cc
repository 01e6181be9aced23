#include "csrc/runtime/elastic/elastic_job.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"
#include "csrc/base/wire.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/runtime/allgather_strings.h"

namespace keras_ring {
namespace {

// How long the next generation may take to start. Each further try may take
// twice as long, up to the limit of init.
double StartLimit(const Options& first, int size, int tries) {
  const double limit = (2.0 + 0.01 * size) * (1 << std::min(tries, 10));
  return std::min(limit, first.start_timeout);
}

// An operation ends with one of these that had not begun when the job lost a
// rank, or had. They do not leave this file.
Status NotBegun() { return CancelledError("not begun"); }
Status Torn() { return CancelledError("torn"); }
bool IsNotBegun(const Status& status) { return status == NotBegun(); }
bool IsTorn(const Status& status) { return status == Torn(); }

// Whether the job goes on after it has broken for this cause: a rank was lost.
// The others are faults of programs, which would be there again.
bool IsLoss(const Status& cause) {
  return cause.code() == StatusCode::kUnavailable;
}

// Whether all ranks get the same results.
bool IsAlikeOnAll(const Request& request) {
  switch (request.kind) {
    case RequestKind::kAllreduce:
    case RequestKind::kAllgather:
    case RequestKind::kBroadcast:
    case RequestKind::kBarrier:
      return request.device == DeviceKind::kHost;
    case RequestKind::kReducescatter:
    case RequestKind::kAlltoall:
    case RequestKind::kJoin:
      break;
  }
  return false;
}

int64_t RowBytes(TensorSpec spec) {
  spec.shape.front() = 1;
  return spec.num_bytes();
}

// Returns where the results of an operation are.
template <typename Operation>
std::vector<std::pair<void*, size_t>> MemoryOf(const Operation& operation) {
  const TensorEntry& entry = operation.entry;
  if (entry.allocate) return operation.allocated;
  std::vector<std::pair<void*, size_t>> memory;
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    memory.emplace_back(entry.outputs[i],
                        entry.request->tensors[i].num_bytes());
  }
  return memory;
}

template <typename Operation>
std::optional<ResultLog::Results> ResultsOf(const Operation& operation) {
  if (!IsAlikeOnAll(*operation.entry.request)) return std::nullopt;
  const std::vector<std::pair<void*, size_t>> all = MemoryOf(operation);
  size_t total = 0;
  for (const auto& [memory, bytes] : all) total += bytes;
  if (total > ResultLog::kMostOfOne) return std::nullopt;
  ResultLog::Results results;
  for (const auto& [memory, bytes] : all) {
    results.emplace_back(static_cast<const char*>(memory), bytes);
  }
  return results;
}

// Notes where results are that are allocated once their size is known; anew
// where the operation is run again.
template <typename Pointer>
auto AllocateOf(const Pointer& operation) {
  operation->allocated.clear();
  return [operation](int result, int64_t rows) -> Result<void*> {
    const Request& request = *operation->entry.request;
    KR_ASSIGN_OR_RETURN(void* const memory,
                        operation->entry.allocate(result, rows));
    const size_t row = result < static_cast<int>(request.tensors.size())
                           ? RowBytes(request.tensors[result])
                           : sizeof(int64_t);
    operation->allocated.emplace_back(memory, rows * row);
    return memory;
  };
}

// Ends an operation with the results of another rank.
template <typename Operation>
Status Give(const std::optional<ResultLog::Results>& found,
            Operation& operation) {
  const TensorEntry& entry = operation.entry;
  if (!found) {
    return DataLossError(
        entry.request->Label() +
        ": the job has lost a rank while this ran, and goes on without it; "
        "other ranks have the result, and cannot give it to this one");
  }
  const ResultLog::Results& results = *found;
  const Status differs = InternalError(
      entry.request->Label() + ": another rank has results of another size");
  if (results.size() != entry.request->tensors.size()) return differs;
  for (size_t i = 0; i < results.size(); ++i) {
    const TensorSpec& spec = entry.request->tensors[i];
    void* memory = nullptr;
    if (entry.allocate) {
      const int64_t row = RowBytes(spec);
      const int64_t bytes = static_cast<int64_t>(results[i].size());
      if (row > 0 && bytes % row != 0) return differs;
      KR_ASSIGN_OR_RETURN(memory, entry.allocate(static_cast<int>(i),
                                                 row > 0 ? bytes / row : 0));
    } else {
      if (static_cast<int64_t>(results[i].size()) != spec.num_bytes()) {
        return differs;
      }
      memory = entry.outputs[i];
    }
    std::copy(results[i].begin(), results[i].end(), static_cast<char*>(memory));
  }
  return OkStatus();
}

// Whether the inputs of an operation that has begun are as they were.
template <typename Operation>
bool CanRunAgain(const Operation& operation) {
  const TensorEntry& entry = operation.entry;
  // The root does not write, and the others do not read.
  if (entry.request->kind == RequestKind::kBroadcast) return true;
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    if (i < entry.inputs.size() && entry.outputs[i] == entry.inputs[i]) {
      return false;
    }
  }
  return true;
}

std::string EncodeTexts(const std::map<std::string, std::string>& texts) {
  WireWriter writer;
  writer.Varint(texts.size());
  for (const auto& [key, text] : texts) {
    writer.Text(key);
    writer.Text(text);
  }
  return writer.Take();
}

Result<std::map<std::string, std::string>> DecodeTexts(std::string_view bytes) {
  constexpr size_t kMaxText = 1 << 20;
  WireReader reader(bytes);
  std::map<std::string, std::string> texts;
  for (size_t left = reader.Count(2); left > 0; --left) {
    std::string key(reader.Text(kMaxText));
    texts[std::move(key)] = std::string(reader.Text(kMaxText));
  }
  if (!reader.Finished()) {
    return InternalError("another rank has told something malformed");
  }
  return texts;
}

// A process that joins has no place among those that people look at yet.
Options FirstOptions(const ElasticJob::Parts& parts) {
  Options options = parts.options;
  if (parts.joins_as < 0) return options;
  options.timeline.clear();
  options.status_directory = "off";
  return options;
}

// Returns the address of this rank by which the others reach it.
std::string OwnAddress(const Runtime& runtime) {
  const Options& options = runtime.options();
  // They have reached that of rank 0. Who joins is not asked for it.
  if (options.rank == 0 || runtime.deps().mesh == nullptr) {
    return options.rendezvous_host;
  }
  return runtime.deps().mesh->members()[options.rank].address;
}

Request CommitRequest(const std::string& group) {
  Request request;
  request.name = "commit/" + group;
  request.kind = RequestKind::kBarrier;
  return request;
}

}  // namespace

ElasticJob::ElasticJob(Parts parts, std::unique_ptr<Membership> membership)
    : parts_(std::move(parts)),
      options_(parts_.options),
      membership_(std::move(membership)) {
  std::vector<int32_t>& first = members_[options_.generation];
  first.resize(options_.size);
  std::iota(first.begin(), first.end(), std::max(parts_.joins_as, 0));
  told_in_ = options_.generation;
  waits_ = parts_.joins_as >= 0;
}

Result<std::unique_ptr<ElasticJob>> ElasticJob::Start(
    Parts parts, std::unique_ptr<Membership> membership) {
  std::unique_ptr<ElasticJob> job(
      new ElasticJob(std::move(parts), std::move(membership)));
  KR_ASSIGN_OR_RETURN(std::shared_ptr<ProcessSets> sets,
                      job->StartGeneration(FirstOptions(job->parts_)));
  job->Resume(std::move(sets));
  return job;
}

Status ElasticJob::Watch() {
  KR_RETURN_IF_ERROR(
      membership_->Watch([this](const GenerationOver& over) { OnOver(over); }));
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-elastic", [this] {
                        SetThreadName("kr-elastic", 0);
                        Run();
                      }));
  return OkStatus();
}

std::shared_ptr<ProcessSets> ElasticJob::sets() const {
  MutexLock lock(mutex_);
  return sets_;
}

ElasticJob::~ElasticJob() { Shutdown("its job being destroyed"); }

Result<std::shared_ptr<ProcessSets>> ElasticJob::StartGeneration(
    const Options& options) {
  LossHandling on_loss;
  on_loss.status_of_waiting = [](const Status& cause) {
    return IsLoss(cause) ? NotBegun() : cause;
  };
  on_loss.status_of_running = [](const Status& cause) {
    return IsLoss(cause) ? Torn() : cause;
  };
  on_loss.broken = [this](const Status& cause) { OnBroken(cause); };
  return parts_.start(options, on_loss);
}

Status ElasticJob::Enqueue(TensorEntry entry,
                           std::shared_ptr<const std::string> commit_group,
                           int64_t generation) {
  auto operation = std::make_shared<Operation>();
  operation->completion = std::move(entry.completion);
  operation->entry = std::move(entry);
  operation->commit_group = std::move(commit_group);
  {
    MutexLock lock(mutex_);
    const Request& request = *operation->entry.request;
    operation->root_member =
        MemberOf(generation == kPresent ? options_.generation : generation,
                 request.root);
    if (operation->commit_group == nullptr) {
      operation->use = log_.Begin(request.name);
    }
  }
  Status status = Submit(operation);
  if (status.ok()) return status;
  operation->completion.Disarm();
  if (operation->commit_group == nullptr) {
    MutexLock lock(mutex_);
    log_.TakeBack(operation->use);
  }
  return status;
}

int32_t ElasticJob::MemberOf(int64_t generation, int32_t rank) {
  const auto members = members_.find(generation);
  if (members == members_.end() || rank < 0 ||
      static_cast<size_t>(rank) >= members->second.size()) {
    return -1;
  }
  return members->second[rank];
}

Result<RequestPtr> ElasticJob::RequestNow(const Operation& operation) {
  const RequestPtr& request = operation.entry.request;
  const int32_t root = operation.root_member;
  // Which is what the job says of a root that there is not.
  if (request->kind != RequestKind::kBroadcast || root < 0) return request;
  const std::vector<int32_t>& members = members_.at(options_.generation);
  const auto found = std::find(members.begin(), members.end(), root);
  if (found == members.end()) {
    return AbortedError(
        request->Label() + ": the job has lost its root, which was rank " +
        std::to_string(request->root) + ", and no other rank has the values");
  }
  const auto rank = static_cast<int32_t>(found - members.begin());
  if (rank == request->root) return request;
  auto counted_anew = std::make_shared<Request>(*request);
  counted_anew->root = rank;
  return RequestPtr(std::move(counted_anew));
}

Status ElasticJob::Submit(const OperationPtr& operation) {
  for (;;) {
    std::shared_ptr<ProcessSets> sets;
    TensorEntry entry;
    {
      MutexLock lock(mutex_);
      if (state_ == State::kEnded) return end_;
      if (operation->commit_group != nullptr &&
          ledger_.IsDiscarded(*operation->commit_group)) {
        ended_.push_back(
            [operation] { operation->completion.Fire(OkStatus()); });
        changed_.NotifyAll();
        return OkStatus();
      }
      if (state_ == State::kChanging) {
        waiting_.push_back(operation);
        return OkStatus();
      }
      KR_ASSIGN_OR_RETURN(entry.request, RequestNow(*operation));
      sets = sets_;
    }
    entry.device_ordinal = operation->entry.device_ordinal;
    entry.ready = operation->entry.ready;
    entry.stream = operation->entry.stream;
    for (const void* input : operation->entry.inputs) {
      entry.inputs.push_back(input);
    }
    for (void* output : operation->entry.outputs) {
      entry.outputs.push_back(output);
    }
    if (operation->entry.allocate) entry.allocate = AllocateOf(operation);
    entry.completion = Completion(
        [this, operation](const Status& status) { OnEnd(operation, status); });
    Status status = sets->job()->Enqueue(std::move(entry));
    if (!IsNotBegun(status)) return status;
    MutexLock lock(mutex_);
    if (sets_ == sets && state_ != State::kEnded) {
      // The loss has been noticed, and this job is about to hear of it.
      waiting_.push_back(operation);
      return OkStatus();
    }
  }
}

void ElasticJob::OnEnd(const OperationPtr& operation, const Status& status) {
  const bool of_step = operation->commit_group != nullptr;
  Status end = status;
  {
    MutexLock lock(mutex_);
    if (IsNotBegun(status)) {
      waiting_.push_back(operation);
      return;
    }
    if (IsTorn(status) && !of_step) {
      torn_.push_back(operation);
      return;
    }
    if (of_step) {
      ledger_.Ended(*operation->commit_group, IsTorn(status));
      if (IsTorn(status)) end = OkStatus();
    } else if (status.ok()) {
      log_.Add(operation->use, ResultsOf(*operation));
    }
  }
  operation->completion.Fire(end);
}

Status ElasticJob::Commit(const std::string& group, Committed done) {
  {
    MutexLock lock(mutex_);
    if (state_ == State::kEnded) return end_;
    // A program may train for a step or two so that its optimizer has
    // variables.
    if (waits_ && steps_.committed >= kMostStepsAlone) {
      return FailedPreconditionError(
          "this process joins a job that runs, and has trained alone for " +
          std::to_string(kMostStepsAlone) +
          " steps: its program must train in a function of `kr.elastic.run`, or"
          " in its first `fit`, over `kr.data.batches`, without"
          " `steps_per_epoch` and `BackupAndRestore`");
    }
    if (commits_.count(group) != 0) {
      return InvalidArgumentError("the commit of " + group +
                                  " is asked for twice at once");
    }
    if (!ledger_.Ask(group)) {
      Count(false, options_.generation);
      ended_.push_back([done = std::move(done)] { done(false); });
      changed_.NotifyAll();
      return OkStatus();
    }
    commits_[group] = std::move(done);
  }
  Status status = AskOthers(group);
  if (!status.ok()) {
    MutexLock lock(mutex_);
    TakeCommit(group);
  }
  return status;
}

Status ElasticJob::AskOthers(const std::string& group) {
  std::shared_ptr<ProcessSets> sets;
  int64_t generation;
  {
    MutexLock lock(mutex_);
    // Resume asks then.
    if (state_ == State::kChanging) return OkStatus();
    if (state_ == State::kEnded) return end_;
    sets = sets_;
    generation = options_.generation;
  }
  TensorEntry entry;
  entry.request = std::make_shared<const Request>(CommitRequest(group));
  entry.completion =
      Completion([this, group, generation](const Status& status) {
        OnAnswer(group, generation, status);
      });
  Status status = sets->job()->Enqueue(std::move(entry));
  return IsNotBegun(status) ? OkStatus() : status;
}

void ElasticJob::Count(bool committed, int64_t generation) {
  if (committed) {
    ++steps_.committed;
    steps_.generation = generation;
  } else {
    ++steps_.discarded;
  }
}

ElasticJob::Steps ElasticJob::steps() const {
  MutexLock lock(mutex_);
  return steps_;
}

void ElasticJob::OnAnswer(const std::string& group, int64_t generation,
                          const Status& status) {
  // Settled once the ranks that are left have said how far they have come.
  if (IsNotBegun(status) || IsTorn(status)) return;
  Committed done;
  {
    MutexLock lock(mutex_);
    done = TakeCommit(group);
    if (status.ok()) {
      ledger_.Committed(group);
      Count(true, generation);
    }
  }
  if (!done) return;
  if (status.ok()) {
    done(true);
  } else {
    done(status);
  }
}

ElasticJob::Committed ElasticJob::TakeCommit(const std::string& group) {
  const auto found = commits_.find(group);
  if (found == commits_.end()) return nullptr;
  Committed done = std::move(found->second);
  commits_.erase(found);
  return done;
}

void ElasticJob::OnBroken(const Status& cause) {
  MutexLock lock(mutex_);
  broken_ = cause;
  if (state_ == State::kRunning) state_ = State::kChanging;
  changed_.NotifyAll();
}

void ElasticJob::OnOver(const GenerationOver& over) {
  {
    MutexLock lock(mutex_);
    // Of its time alone, this process knows more than the launcher.
    if (waits_) return;
    over_ = over;
  }
  BreakIfOver();
}

void ElasticJob::BreakIfOver() {
  std::shared_ptr<ProcessSets> sets;
  Status cause;
  {
    MutexLock lock(mutex_);
    if (!over_) return;
    const auto generation = static_cast<int64_t>(over_->generation);
    // If it has not begun yet, Meet and Resume ask.
    if (meeting_ != nullptr && generation == meeting_generation_) {
      sets = meeting_;
    } else if (state_ == State::kRunning && generation == options_.generation) {
      sets = sets_;
    }
    cause = UnavailableError(over_->reason);
  }
  if (sets != nullptr) sets->job()->Break(cause);
}

void ElasticJob::Meet(std::shared_ptr<ProcessSets> sets, int64_t generation) {
  {
    MutexLock lock(mutex_);
    meeting_ = std::move(sets);
    meeting_generation_ = generation;
  }
  BreakIfOver();
}

bool ElasticJob::IsWaiting() const {
  MutexLock lock(mutex_);
  return waits_;
}

Result<bool> ElasticJob::Admit(Deadline deadline) {
  MutexLock lock(mutex_);
  if (!std::exchange(admit_called_, true)) {
    admitting_ = true;
    changed_.NotifyAll();
  }
  const bool is_over =
      changed_.WaitUntil(mutex_, deadline.at(), [this]() KR_REQUIRES(mutex_) {
        return !admitting_ || state_ == State::kEnded || stop_;
      });
  if (!is_over) return false;
  admit_called_ = false;
  if (!std::exchange(admitting_, false)) return true;
  if (state_ == State::kEnded) return end_;
  return UnavailableError("this rank is shutting down");
}

void ElasticJob::Run() {
  for (;;) {
    Status cause;
    bool goes_on = false;
    {
      MutexLock lock(mutex_);
      changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) {
        return stop_ || !broken_.ok() || !ended_.empty() || admitting_;
      });
      if (stop_) break;
      cause = std::exchange(broken_, OkStatus());
      goes_on = !cause.ok() || admitting_;
    }
    FireEnded();
    if (!goes_on) continue;
    const Status status = GoOn(std::move(cause));
    if (!status.ok()) {
      EndAll(status);
      break;
    }
  }
  FireEnded();
}

void ElasticJob::FireEnded() {
  std::vector<std::function<void()>> ended;
  {
    MutexLock lock(mutex_);
    ended.swap(ended_);
  }
  for (const auto& end : ended) end();
}

Status ElasticJob::GoOn(Status cause) {
  std::shared_ptr<ProcessSets> sets;
  Options options;
  {
    MutexLock lock(mutex_);
    sets = sets_;
    options = options_;
  }
  const std::string address = OwnAddress(*sets->job());
  if (!cause.ok()) {
    const Status over = sets->job()->status();
    Leave(sets);
    if (!IsLoss(cause) || !(over == cause)) return over;
  }
  // Whether the ranks have let in who waited: they do not ask for it again if
  // the generation cannot start, which some may have begun already.
  bool admitted = false;
  std::optional<Deadline> limit;
  for (int tries = 0;; ++tries) {
    FireEnded();
    KR_ASSIGN_OR_RETURN(Socket listener, parts_.listen(address));
    KR_ASSIGN_OR_RETURN(
        const NextGeneration next,
        AskLauncher(listener, address, options, cause, admitted));
    admitted = admitted || next.admitted;
    Leave(sets);
    KR_RETURN_IF_ERROR(Settle(next));
    options = parts_.options;
    options.rank = next.rank;
    options.size = static_cast<int>(next.members.size());
    options.generation = static_cast<int64_t>(next.generation);
    options.rendezvous_host = next.host;
    options.rendezvous_port = next.port;
    // Another rank listens anew, once it knows the address of rank 0.
    if (next.rank != 0) listener.Close();
    options.rendezvous_fd = listener.fd();
    options.start_timeout = StartLimit(parts_.options, options.size, tries);
    Result<std::shared_ptr<ProcessSets>> started = StartGeneration(options);
    Status shared = started.status();
    std::vector<std::map<std::string, std::string>> told;
    if (started.ok()) {
      Meet(*started, options.generation);
      Runtime& runtime = *(*started)->job();
      auto of_all = TellOthers(runtime, options.generation);
      shared = of_all.status();
      if (shared.ok()) shared = ShareResults(runtime);
      if (shared.ok()) told = std::move(of_all).value();
      if (!shared.ok()) {
        (*started)->Shutdown("");
        MutexLock lock(mutex_);
        meeting_ = nullptr;
        broken_ = OkStatus();  // which is what has just been handled
      }
    }
    if (shared.ok()) {
      options.start_timeout = parts_.options.start_timeout;
      {
        MutexLock lock(mutex_);
        options_ = options;
        members_[options.generation] = next.members;
        told_[options.generation] = std::move(told);
        meeting_ = nullptr;
        if (told_.size() > kMostTold) told_.erase(told_.begin());
      }
      parts_.publish(*started);
      Resume(std::move(started).value());
      if (admitted) {
        MutexLock lock(mutex_);
        admitting_ = false;
        changed_.NotifyAll();
      }
      return OkStatus();
    }
    cause = shared;
    if (!limit) limit = Deadline::AfterSeconds(parts_.options.start_timeout);
    if (limit->expired()) {
      return shared.WithContext("the ranks that are left cannot go on, after " +
                                std::to_string(tries + 1) + " tries");
    }
    KR_LOG(kInfo) << "generation " << next.generation
                  << " could not start: " << cause.message();
  }
}

Result<NextGeneration> ElasticJob::AskLauncher(const Socket& listener,
                                               const std::string& address,
                                               const Options& options,
                                               const Status& cause,
                                               bool admitted) {
  MemberReport report;
  report.generation = static_cast<uint64_t>(options.generation);
  report.host = address;
  KR_ASSIGN_OR_RETURN(report.port, LocalPort(listener));
  report.cause = cause.message();
  {
    MutexLock lock(mutex_);
    report.steps = ledger_.Reports();
    if (waits_) {
      report.stand = MemberStand::kJoins;
    } else if (admitting_ && !admitted) {
      report.stand = MemberStand::kAdmits;
    }
  }
  KR_RETURN_IF_ERROR(membership_->Send(report));
  // Others come to the end of their step, however long that takes.
  const Deadline deadline =
      report.stand == MemberStand::kLeft
          ? Deadline::AfterSeconds(parts_.options.start_timeout)
          : Deadline(TimePoint::max());
  return membership_->Await(deadline, [this, &report] {
    MutexLock lock(mutex_);
    if (report.stand == MemberStand::kAdmits && !broken_.ok()) {
      // One of them does not come any more.
      report.stand = MemberStand::kLeft;
      report.cause = broken_.message();
      const Status sent = membership_->Send(report);
      if (!sent.ok()) {
        KR_LOG(kWarning) << sent.message();
      }
    }
    return stop_;
  });
}

void ElasticJob::Leave(std::shared_ptr<ProcessSets>& sets) {
  if (sets == nullptr) return;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kRunning) state_ = State::kChanging;
  }
  // Its operations have ended when this returns.
  std::exchange(sets, nullptr)->Shutdown("");
  MutexLock lock(mutex_);
  broken_ = OkStatus();  // which is over
}

void ElasticJob::CountUsesAnew() {
  log_.Clear();
  for (const auto* some : {&waiting_, &torn_}) {
    for (const OperationPtr& one : *some) {
      if (one->commit_group != nullptr) continue;
      one->use = log_.Begin(one->entry.request->name);
    }
  }
}

Status ElasticJob::Settle(const NextGeneration& next) {
  std::vector<StepLedger::Answer> answers;
  std::vector<Committed> commits;
  std::vector<OperationPtr> discarded;
  {
    MutexLock lock(mutex_);
    // Who comes in has used no name yet.
    if (next.admitted) CountUsesAnew();
    if (waits_) {
      waits_ = false;
      to_tell_.clear();  // of its time alone
      ledger_.Adopt(next.settled);
      return OkStatus();
    }
    KR_ASSIGN_OR_RETURN(answers, ledger_.Settle(next.settled));
    for (const StepLedger::Answer& answer : answers) {
      commits.push_back(TakeCommit(answer.group));
      // It has the shares of those who have been lost.
      if (commits.back()) Count(answer.committed, options_.generation);
    }
    const auto kept = std::stable_partition(
        waiting_.begin(), waiting_.end(),
        [this](const OperationPtr& one) KR_REQUIRES(mutex_) {
          return one->commit_group == nullptr ||
                 !ledger_.IsDiscarded(*one->commit_group);
        });
    discarded.assign(std::make_move_iterator(kept),
                     std::make_move_iterator(waiting_.end()));
    waiting_.erase(kept, waiting_.end());
  }
  for (const OperationPtr& one : discarded) one->completion.Fire(OkStatus());
  for (size_t i = 0; i < answers.size(); ++i) {
    if (commits[i]) commits[i](answers[i].committed);
  }
  return OkStatus();
}

Status ElasticJob::Tell(const std::string& key, std::string text,
                        int64_t generation) {
  MutexLock lock(mutex_);
  if (generation < told_in_) {
    return AbortedError("generation " + std::to_string(generation) +
                        " of the job is over");
  }
  to_tell_[key] = std::move(text);
  return OkStatus();
}

std::vector<ElasticJob::Told> ElasticJob::ToldAfter(
    int64_t generation, const std::string& key) const {
  MutexLock lock(mutex_);
  std::vector<Told> all;
  for (auto found = told_.upper_bound(generation); found != told_.end();
       ++found) {
    Told& one = all.emplace_back();
    one.generation = found->first;
    one.members = members_.at(found->first);
    for (const auto& of_rank : found->second) {
      const auto text = of_rank.find(key);
      one.texts.push_back(text == of_rank.end() ? "" : text->second);
    }
  }
  return all;
}

Result<std::vector<std::map<std::string, std::string>>> ElasticJob::TellOthers(
    Runtime& runtime, int64_t generation) {
  std::string own;
  {
    MutexLock lock(mutex_);
    told_in_ = generation;
    own = EncodeTexts(to_tell_);
  }
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> lists,
                      AllgatherStrings(runtime, "what ranks tell", own));
  std::vector<std::map<std::string, std::string>> told;
  for (const std::string& list : lists) {
    KR_ASSIGN_OR_RETURN(told.emplace_back(), DecodeTexts(list));
  }
  return told;
}

Status ElasticJob::ShareResults(Runtime& runtime) {
  std::vector<OperationPtr> pending;
  std::vector<ResultLog::Use> wanted;
  {
    MutexLock lock(mutex_);
    for (const auto* some : {&waiting_, &torn_}) {
      for (const OperationPtr& one : *some) {
        if (one->commit_group != nullptr) continue;
        pending.push_back(one);
        wanted.push_back(one->use);
      }
    }
  }
  KR_ASSIGN_OR_RETURN(const std::vector<std::string> lists,
                      AllgatherStrings(runtime, "results that ranks lack",
                                       ResultLog::EncodeWanted(wanted)));
  std::vector<ResultLog::Use> wanted_by_all;
  for (const std::string& list : lists) {
    KR_ASSIGN_OR_RETURN(const std::vector<ResultLog::Use> of_one,
                        ResultLog::DecodeWanted(list));
    wanted_by_all.insert(wanted_by_all.end(), of_one.begin(), of_one.end());
  }
  // All ranks know this.
  ResultLog::Found found;
  if (!wanted_by_all.empty()) {
    std::string own;
    {
      MutexLock lock(mutex_);
      own = log_.EncodeFound(wanted_by_all);
    }
    KR_ASSIGN_OR_RETURN(
        const std::vector<std::string> answers,
        AllgatherStrings(runtime, "results that ranks have", own));
    for (const std::string& answer : answers) {
      KR_RETURN_IF_ERROR(ResultLog::DecodeFound(answer, found));
    }
  }
  // From here on nothing fails: what is given away is given away once.
  std::vector<std::pair<OperationPtr, Status>> ended;
  {
    MutexLock lock(mutex_);
    for (const OperationPtr& one : pending) {
      const auto results = found.find(one->use);
      if (results != found.end()) {
        const Status given = Give(results->second, *one);
        if (given.ok()) log_.Add(one->use, results->second);
        ended.emplace_back(one, given);
      }
    }
    for (const OperationPtr& one : torn_) {
      if (found.count(one->use) != 0) continue;
      if (CanRunAgain(*one)) {
        waiting_.push_back(one);
      } else {
        ended.emplace_back(
            one, DataLossError(
                     one->entry.request->Label() +
                     ": the job has lost a rank while this ran, and goes on "
                     "without it; no rank has the result, and the input was "
                     "overwritten"));
      }
    }
    torn_.clear();
    const auto is_over = [&found](const OperationPtr& one) {
      return one->commit_group == nullptr && found.count(one->use) != 0;
    };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_over),
                   waiting_.end());
  }
  for (const auto& [one, status] : ended) one->completion.Fire(status);
  return OkStatus();
}

void ElasticJob::Resume(std::shared_ptr<ProcessSets> sets) {
  std::vector<OperationPtr> waiting;
  std::vector<std::string> commits;
  {
    MutexLock lock(mutex_);
    sets_ = std::move(sets);
    // It may have broken already.
    if (broken_.ok()) state_ = State::kRunning;
    waiting.swap(waiting_);
    for (const auto& [group, done] : commits_) commits.push_back(group);
  }
  for (const OperationPtr& one : waiting) {
    const Status status = Submit(one);
    if (status.ok()) continue;
    if (one->commit_group == nullptr) {
      MutexLock lock(mutex_);
      log_.TakeBack(one->use);
    }
    one->completion.Fire(status);
  }
  for (const std::string& group : commits) {
    const Status status = AskOthers(group);
    if (!status.ok()) OnAnswer(group, ElasticJob::kPresent, status);
  }
  BreakIfOver();
}

void ElasticJob::EndAll(const Status& status) {
  std::vector<OperationPtr> pending;
  std::map<std::string, Committed> commits;
  {
    MutexLock lock(mutex_);
    state_ = State::kEnded;
    end_ = status;
    pending.swap(waiting_);
    pending.insert(pending.end(), torn_.begin(), torn_.end());
    torn_.clear();
    commits.swap(commits_);
    changed_.NotifyAll();
  }
  for (const OperationPtr& one : pending) one->completion.Fire(status);
  for (const auto& [group, done] : commits) done(status);
}

void ElasticJob::Shutdown(const std::string& reason) {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  membership_->Stop();
  const std::shared_ptr<ProcessSets> last = sets();
  if (last != nullptr) last->Shutdown(reason);
  EndAll(UnavailableError("this rank has shut down"));
  FireEnded();
  MutexLock lock(mutex_);
  sets_ = nullptr;
}

namespace {

std::atomic<ElasticJob*> current{nullptr};

}  // namespace

ElasticJob* CurrentElasticJob() {
  return current.load(std::memory_order_acquire);
}

void SetCurrentElasticJob(std::unique_ptr<ElasticJob> job) {
  current.store(job.release(), std::memory_order_release);
}

}  // namespace keras_ring
