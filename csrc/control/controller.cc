#include "csrc/control/controller.h"

#include <algorithm>
#include <iterator>

#include "csrc/control/fusion_plan.h"

namespace keras_ring {
namespace {

// The limit of names that some ranks asked for and others did not. No program
// has so many operations in flight.
constexpr size_t kMaxPending = 1 << 20;

// Checks that the items of a bucket may share a collective.
Status CheckBucket(const std::vector<std::shared_ptr<const Response>>& items) {
  for (const auto& item : items) {
    if (item == items.front() ||
        MayShare(items.front()->request, item->request)) {
      continue;
    }
    return InternalError("a bucket of " + items.front()->request.Label() +
                         " and " + item->request.Label());
  }
  return OkStatus();
}

}  // namespace

Controller::Controller(ControlTree tree, const ControllerOptions& options,
                       const Clock& clock, Counters& counters, RankSet ranks)
    : tree_(std::move(tree)),
      ranks_(std::move(ranks)),
      clock_(clock),
      measured_clock_(options.measured_clock ? *options.measured_clock : clock),
      counters_(counters),
      // The estimate leaves out parts of a message: these get a sixteenth.
      max_bytes_(options.max_message_bytes - options.max_message_bytes / 16),
      participants_(tree_),
      cache_(options.cache_capacity),
      pending_(tree_, participants_, cache_, clock_, *this),
      scheduler_(options.schedule, cache_, counters_),
      stalls_(tree_, ranks_, options.stalls, clock_, *this) {
  for (const auto& [child, ranks] : tree_.children) child_sequence_[child] = 0;
  if (options.measures_clocks) {
    clock_offset_.emplace(tree_.is_root(), options.shares_clock);
  }
}

// --- Readiness, on its way up ---

void Controller::Submit(const RequestPtr& request) {
  KR_DCHECK(thread_.IsOwner());
  if (ended_) return;  // its entry was finished by the end of the job
  if (request->kind == RequestKind::kJoin) {
    joining_.insert(tree_.rank);
    return;
  }
  const std::optional<ResponseCache::Slot> slot = cache_.Find(request->name);
  const ReadinessTable::Contributor self{tree_.rank, sequence_, LastReady()};
  Status status;
  if (slot && cache_.Agrees(*slot, request, tree_.rank)) {
    ++counters_.cache_hits;
    status = pending_.Contribute(self, *slot, cache_.At(*slot));
  } else {
    ++counters_.cache_misses;
    status = pending_.Contribute(self, {VariantOf(*request, {tree_.rank})});
  }
  KR_CHECK(status.ok());  // our own queue lets no name in twice
}

void Controller::OnSlotComplete(ResponseCache::Slot slot,
                                std::shared_ptr<const Response> agreed,
                                const LastReady& last) {
  if (tree_.is_root()) {
    Ready(slot, std::move(agreed), last);
  } else {
    ready_up_.last.Merge(last);
    ready_up_.slots.push_back(slot);
  }
}

void Controller::OnVariantsComplete(const std::string& name,
                                    std::vector<RequestVariant> variants,
                                    const LastReady& last) {
  if (!tree_.is_root()) {
    ready_up_.last.Merge(last);
    if (EncodedBytes(variants) > max_bytes_) LeaveSplitsOut(variants);
    ready_up_.uncached.push_back(std::move(variants));
    return;
  }
  Result<Response> agreed = Agree(variants, tree_.size, ranks_);
  if (!agreed.ok()) return Fail({name}, agreed.status());
  const Status fits = CheckLength(*agreed, max_bytes_);
  if (!fits.ok()) return Fail({name}, fits);
  Ready(std::nullopt,
        std::make_shared<const Response>(std::move(agreed).value()), last);
}

void Controller::Ready(std::optional<ResponseCache::Slot> slot,
                       std::shared_ptr<const Response> agreed,
                       const LastReady& last) {
  Status status = CheckJoined(*agreed, participants_.joined(), ranks_);
  if (!status.ok()) return Fail({agreed->request.name}, status);
  scheduler_.Add(slot, std::move(agreed), last, clock_.Now());
}

void Controller::Send(int peer, Message message) {
  output_.messages.emplace_back(peer, EncodeMessage(message));
}

void Controller::Report(std::string text) {
  output_.reports.push_back(std::move(text));
}

void Controller::FlushReady() {
  if (ready_up_.slots.empty() && ready_up_.uncached.empty()) return;
  std::sort(ready_up_.slots.begin(), ready_up_.slots.end());
  ready_up_.sequence = sequence_;
  const LastReady last = ready_up_.last;
  auto uncached = std::exchange(ready_up_.uncached, {});
  size_t bytes = 0;
  for (std::vector<RequestVariant>& variants : uncached) {
    const size_t more = EncodedBytes(variants);
    if (bytes > 0 && bytes + more > max_bytes_) {
      SendUp(std::exchange(ready_up_, ReadyMessage()));
      ready_up_.sequence = sequence_;
      ready_up_.last = last;
      bytes = 0;
    }
    bytes += more;
    ready_up_.uncached.push_back(std::move(variants));
  }
  SendUp(std::exchange(ready_up_, ReadyMessage()));
}

void Controller::FlushDecisions() {
  if (decided_.decisions.empty()) return;
  const std::string bytes = EncodeMessage(std::move(decided_));
  decided_ = DecisionMessage();
  decided_bytes_ = 0;
  for (const auto& [child, ranks] : tree_.children) {
    output_.messages.emplace_back(child, bytes);
  }
}

// --- Messages ---

Status Controller::OnMessage(int peer, std::string_view bytes) {
  KR_DCHECK(thread_.IsOwner());
  KR_ASSIGN_OR_RETURN(Message message, DecodeMessage(bytes, tree_.size));
  return std::visit([&](auto&& body) { return Handle(peer, std::move(body)); },
                    std::move(message));
}

Status Controller::Handle(int peer, ReadyMessage message) {
  auto child = tree_.children.find(peer);
  if (child == tree_.children.end()) {
    return InternalError("readiness from a rank that is not below this one");
  }
  uint64_t& last = child_sequence_[peer];
  if (message.sequence > sequence_ || message.sequence < last) {
    return InternalError(
        "readiness from the " +
        std::string(message.sequence < last ? "past" : "future") +
        ": decision " + std::to_string(message.sequence) + " of " +
        std::to_string(sequence_));
  }
  last = message.sequence;
  if (message.last.rank != LastReady::kNone &&
      !std::binary_search(child->second.begin(), child->second.end(),
                          message.last.rank)) {
    return InternalError("readiness with rank " +
                         std::to_string(message.last.rank) +
                         " as the last, which is not below the sender");
  }
  const ReadinessTable::Contributor who{peer, message.sequence, message.last};
  if (pending_.size() > kMaxPending) {
    return InternalError("readiness for more than " +
                         std::to_string(kMaxPending) + " names at once");
  }
  if (ended_) return OkStatus();
  for (uint64_t slot : message.slots) {
    const std::shared_ptr<const Response>& agreed = cache_.At(slot);
    if (agreed == nullptr) {
      return InternalError("readiness for the unknown slot " +
                           std::to_string(slot));
    }
    stalls_.OnReady(peer, agreed->request.name);
    KR_RETURN_IF_ERROR(pending_.Contribute(who, slot, agreed));
  }
  for (std::vector<RequestVariant>& variants : message.uncached) {
    std::vector<int32_t> ranks;
    for (const RequestVariant& variant : variants) {
      ranks.insert(ranks.end(), variant.ranks.begin(), variant.ranks.end());
    }
    std::sort(ranks.begin(), ranks.end());
    const std::vector<int32_t>& below = participants_.RanksOf(peer);
    if (ranks != below) {
      return InternalError("readiness for " + RanksText(ranks_.Global(ranks)) +
                           ", but below it are " +
                           RanksText(ranks_.Global(below)));
    }
    stalls_.OnReady(peer, variants.front().request.name);
    KR_RETURN_IF_ERROR(pending_.Contribute(who, std::move(variants)));
  }
  ForgetEvicted();
  return OkStatus();
}

Status Controller::Handle(int peer, LeaveMessage message) {
  if (tree_.children.count(peer) == 0) {
    return InternalError("a farewell from a rank that is not below");
  }
  if (tree_.is_root()) {
    EndJob(message);
  } else {
    SendUp(std::move(message));
  }
  return OkStatus();
}

Status Controller::Handle(int peer, DecisionMessage message) {
  if (peer != tree_.parent) {
    return InternalError("decisions from a rank that is not the parent");
  }
  // Names that are ready now must go up under the sequence number at which they
  // became ready: these decisions may evict their slots or fail them.
  FlushReady();
  if (!tree_.children.empty()) {
    const std::string bytes = EncodeMessage(message);
    for (const auto& [child, ranks] : tree_.children) {
      output_.messages.emplace_back(child, bytes);
    }
  }
  for (const Decision& decision : message.decisions) {
    KR_RETURN_IF_ERROR(Apply(decision));
    if (std::holds_alternative<JoinDecision>(decision)) {
      pending_.CompleteWithoutJoined();
      FlushReady();  // as above
    }
  }
  return OkStatus();
}

Status Controller::Handle(int, AbortMessage message) {
  if (output_.aborted.ok()) output_.aborted = message.cause;
  return OkStatus();
}

Status Controller::Handle(int, PingMessage) { return OkStatus(); }

Status Controller::Handle(int peer, JoinMessage message) {
  if (tree_.children.count(peer) == 0) {
    return InternalError("a join from a rank that is not below");
  }
  const std::vector<int32_t>& below = participants_.RanksOf(peer);
  for (int32_t rank : message.ranks) {
    if (!std::binary_search(below.begin(), below.end(), rank) ||
        !joining_.insert(rank).second) {
      return InternalError("a join of rank " + std::to_string(rank) +
                           ", which is not below or has joined");
    }
  }
  return OkStatus();
}

Status Controller::Handle(int peer, ByeMessage) {
  byes_.insert(peer);
  return OkStatus();
}

Status Controller::Handle(int peer, const ClockQuery& message) {
  if (tree_.children.count(peer) == 0 || !clock_offset_) {
    return InternalError("a question about the clock that is not to be asked");
  }
  Send(peer, clock_offset_->Answer(message, measured_clock_.Now()));
  return OkStatus();
}

Status Controller::Handle(int peer, const ClockReply& message) {
  if (peer != tree_.parent || !clock_offset_) {
    return InternalError("an answer about the clock that was not asked for");
  }
  const TimePoint now = measured_clock_.Now();
  clock_offset_->OnReply(message, now);
  if (const auto reading = clock_offset_->TakeReading(now)) {
    output_.clock = reading;
  }
  return OkStatus();
}

std::vector<std::pair<int, std::string>> Controller::ByeMessages() const {
  const std::string bytes = EncodeMessage(ByeMessage{});
  std::vector<std::pair<int, std::string>> messages;
  for (int peer : tree_.Peers()) messages.emplace_back(peer, bytes);
  return messages;
}

std::vector<std::pair<int, std::string>> Controller::AbortMessages(
    const Status& cause, int except) const {
  const std::string bytes = EncodeMessage(AbortMessage{cause});
  std::vector<std::pair<int, std::string>> messages;
  for (int peer : tree_.Peers()) {
    if (peer != except) messages.emplace_back(peer, bytes);
  }
  return messages;
}

// --- Decisions, on their way down ---

void Controller::Decide(Decision decision) {
  if (ended_) return;
  Status applied = Apply(decision);
  KR_CHECK(applied.ok());  // our own decision
  size_t bytes = 0;
  if (const auto* execute = std::get_if<ExecuteDecision>(&decision)) {
    for (const auto& agreed : execute->uncached) bytes += EncodedBytes(*agreed);
  }
  if (decided_bytes_ + bytes > max_bytes_) FlushDecisions();
  decided_bytes_ += bytes;
  decided_.decisions.push_back(std::move(decision));
}

void Controller::FlushJoins() {
  if (joining_.empty()) return;
  std::vector<int32_t> ranks(joining_.begin(), joining_.end());
  joining_.clear();
  if (!tree_.is_root()) return SendUp(JoinMessage{std::move(ranks)});
  Decide(JoinDecision{std::move(ranks)});
  pending_.CompleteWithoutJoined();
}

void Controller::Fail(std::vector<std::string> names, const Status& status) {
  Decide(FailDecision{std::move(names), status});
}

void Controller::EndJob(const LeaveMessage& leave) {
  const std::string who = "rank " + std::to_string(ranks_.Global(leave.rank));
  std::string why = " ended with " + leave.reason;
  if (leave.reason.empty()) {
    why = ranks_.is_job()
              ? " has shut down (its program ended or called shutdown()), so "
                "no collective can complete any more"
              : " has removed it or shut down, so none of its collectives can "
                "complete any more";
  }
  Decide(
      EndDecision{UnavailableError(ranks_.Text() + " is over: " + who + why)});
}

void Controller::Tune(Tunable tunable, int64_t value) {
  KR_DCHECK(thread_.IsOwner());
  KR_CHECK(tree_.is_root() && value >= 0 && value <= kMaxTunedValue);
  Decide(TuneDecision{tunable, value});
}

void Controller::Reconfigure(uint64_t generation) {
  KR_DCHECK(thread_.IsOwner());
  KR_CHECK(tree_.is_root());
  Decide(ReconfigureDecision{generation});
}

Status Controller::Apply(const Decision& decision) {
  ++sequence_;
  KR_ASSIGN_OR_RETURN(Command command,
                      std::visit(
                          [this](const auto& one) -> Result<Command> {
                            KR_ASSIGN_OR_RETURN(auto applied, Apply(one));
                            applied.sequence = sequence_;
                            return Command(std::move(applied));
                          },
                          decision));
  output_.commands.push_back(std::move(command));
  ForgetEvicted();
  return OkStatus();
}

Result<ExecuteCommand> Controller::Apply(const ExecuteDecision& decision) {
  ExecuteCommand command;
  command.joined = participants_.joined();
  command.last = decision.last;
  if (decision.last.rank == tree_.rank) {
    ++counters_.last_buckets;
    counters_.late_ns += Duration(decision.last.late).count();
  }
  command.items.reserve(decision.slots.size() + decision.uncached.size());
  // Touch before insert: an insertion may evict, and must not evict the slots
  // that this decision uses.
  for (uint64_t slot : decision.slots) {
    const std::shared_ptr<const Response>& agreed = cache_.At(slot);
    if (agreed == nullptr) {
      return InternalError("a decision for the unknown slot " +
                           std::to_string(slot));
    }
    cache_.Touch(slot);
    command.items.push_back(agreed);
  }
  for (const auto& agreed : decision.uncached) {
    cache_.Insert(agreed, sequence_);
    command.items.push_back(agreed);
  }
  KR_RETURN_IF_ERROR(CheckBucket(command.items));
  KR_RETURN_IF_ERROR(CheckNonePends(command.items));
  for (auto& item : command.items) {
    stalls_.Forget(item->request.name);
    // A rank that has joined since this was agreed on brings nothing of its
    // own any more.
    if (item->DependsOn(command.joined)) {
      item = std::make_shared<const Response>(item->Without(command.joined));
    }
  }
  return command;
}

Result<FailCommand> Controller::Apply(const FailDecision& decision) {
  for (const std::string& name : decision.names) {
    pending_.Fail(name, sequence_);
    stalls_.Forget(name);
  }
  FailCommand command;
  command.names = decision.names;
  command.status = decision.status;
  return command;
}

Result<EndCommand> Controller::Apply(const EndDecision& decision) {
  End();
  EndCommand command;
  command.status = decision.status;
  return command;
}

Result<PlanCommand> Controller::Apply(const PlanDecision& decision) {
  PlanCommand command;
  for (const std::vector<ResponseCache::Slot>& slots : decision.plan) {
    command.buckets.emplace_back();
    for (ResponseCache::Slot slot : slots) {
      if (!cache_.IsLive(slot)) {
        return InternalError("a plan with the unknown slot " +
                             std::to_string(slot));
      }
      command.buckets.back().push_back(cache_.At(slot)->request.name);
    }
  }
  return command;
}

Result<JoinCommand> Controller::Apply(const JoinDecision& decision) {
  for (int32_t rank : decision.ranks) {
    if (!participants_.joined().Contains(rank)) continue;
    return InternalError("rank " + std::to_string(rank) + " has joined twice");
  }
  JoinCommand command;
  if (participants_.Join(decision.ranks)) {
    command.last_rank = decision.ranks.front();
  }
  stalls_.SetJoined(participants_.joined());
  return command;
}

Result<TuneCommand> Controller::Apply(const TuneDecision& decision) {
  scheduler_.Tune(decision.tunable, decision.value);
  TuneCommand command;
  command.tunable = decision.tunable;
  command.value = decision.value;
  return command;
}

Result<ReconfigureCommand> Controller::Apply(
    const ReconfigureDecision& decision) {
  End();
  ReconfigureCommand command;
  command.generation = decision.generation;
  command.status = UnavailableError(
      ranks_.Text() + " goes on as generation " +
      std::to_string(decision.generation) +
      ": what was not decided before has to be asked for again there");
  return command;
}

void Controller::End() {
  ended_ = true;
  pending_.Clear();
  scheduler_.Clear();
}

// The parent cannot have decided on a name that this node has not reported as
// ready.
Status Controller::CheckNonePends(
    const std::vector<std::shared_ptr<const Response>>& items) {
  if (tree_.is_root() || pending_.empty()) return OkStatus();
  for (const auto& item : items) {
    if (!pending_.Pends(item->request.name)) continue;
    return InternalError("a decision to run " + item->request.Label() +
                         ", which is not ready below this rank");
  }
  return OkStatus();
}

void Controller::ForgetEvicted() {
  uint64_t everyone = sequence_;
  for (const auto& [child, sequence] : child_sequence_) {
    everyone = std::min(everyone, sequence);
  }
  cache_.Forget(everyone);
  pending_.ForgetFailed(everyone);
}

void Controller::OnLaunched(int count) {
  KR_DCHECK(thread_.IsOwner());
  // Only the coordinator paces decisions by its own data thread.
  if (tree_.is_root()) scheduler_.OnLaunched(count);
}

void Controller::Leave(const std::string& reason) {
  KR_DCHECK(thread_.IsOwner());
  LeaveMessage leave{tree_.rank, reason};
  if (tree_.is_root()) {
    EndJob(leave);
  } else if (!ended_) {
    SendUp(std::move(leave));
  }
}

Controller::Output Controller::Take() {
  KR_DCHECK(thread_.IsOwner());
  pending_.EndBatch();
  FlushJoins();
  if (tree_.is_root() && !ended_) {
    if (std::optional<StepPlan> plan = scheduler_.NewPlan()) {
      Decide(PlanDecision{std::move(*plan)});
    }
    while (auto bucket = scheduler_.Next(clock_.Now())) {
      Decide(std::move(*bucket));
    }
  }
  FlushReady();
  FlushDecisions();
  return std::exchange(output_, Output());
}

// --- Timers ---

std::optional<TimePoint> Controller::NextTimer() const {
  KR_DCHECK(thread_.IsOwner());
  std::optional<TimePoint> oldest;
  if (!pending_.empty()) oldest = pending_.oldest();
  std::optional<TimePoint> next = stalls_.NextTimer(oldest);
  const auto consider = [&next](const std::optional<TimePoint>& at) {
    if (at && (!next || *at < *next)) next = at;
  };
  consider(scheduler_.NextTimer());
  if (!clock_offset_) return next;
  if (const std::optional<TimePoint> question = clock_offset_->NextQuestion()) {
    consider(*question - (measured_clock_.Now() - clock_.Now()));
  }
  return next;
}

void Controller::OnTimer() {
  KR_DCHECK(thread_.IsOwner());
  const TimePoint now = clock_.Now();
  std::optional<TimePoint> oldest;
  if (!pending_.empty()) {
    if (stalls_.CheckDue(now, pending_.oldest())) pending_.RefreshOldest(now);
    oldest = pending_.oldest();
  }
  stalls_.OnTimer(now, oldest);
  if (!clock_offset_ || ended_) return;
  const std::optional<TimePoint> question = clock_offset_->NextQuestion();
  const TimePoint measured = measured_clock_.Now();
  if (question && measured >= *question) SendUp(clock_offset_->Ask(measured));
}

}  // namespace keras_ring
