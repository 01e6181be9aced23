#include "csrc/control/controller.h"

#include <algorithm>
#include <iterator>

#include "csrc/control/fusion_plan.h"

namespace keras_ring {
namespace {

// The most that a planned bucket holds. More would not be quicker, but what
// waits for the bucket's first tensors would wait longer.
constexpr int64_t kPlannedBytes = 16 << 20;

// Names that some ranks asked for and others did not. No program has so many
// operations in flight.
constexpr size_t kMaxPending = 1 << 20;

// A report waits so long for ranks to say what they do. They answer whatever
// their program does, so who has not by then will not.
constexpr Duration kAnswerLimit = std::chrono::seconds(1);

// What is executed as one bucket must be of one kind.
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
      options_(options),
      clock_(clock),
      counters_(counters),
      self_{tree_.rank},
      cache_(options.cache_capacity),
      planner_(cache_, std::min(options.fusion_threshold, kPlannedBytes)),
      stalls_(tree_.size, options.stall_check_time, options.stall_shutdown_time,
              ranks_) {
  for (const auto& [child, ranks] : tree_.children) child_sequence_[child] = 0;
}

// --- Readiness, on its way up ---

void Controller::Submit(const RequestPtr& request) {
  KR_DCHECK(thread_.IsOwner());
  if (ended_) return;  // its entry was finished by the end of the job
  if (request->kind == RequestKind::kJoin) {
    if (tree_.is_root()) return DecideJoin(tree_.rank);
    return SendUp(JoinMessage{tree_.rank});
  }
  const std::optional<ResponseCache::Slot> slot = cache_.Find(request->name);
  if (slot && cache_.Agrees(*slot, request, tree_.rank)) {
    ++counters_.cache_hits;
    const Status status =
        Contribute(tree_.rank, sequence_, *slot, cache_.At(*slot));
    KR_CHECK(status.ok());  // our own queue lets no name in twice
    return;
  }
  ++counters_.cache_misses;
  const Status status =
      Contribute(tree_.rank, sequence_, {VariantOf(*request, self_)});
  KR_CHECK(status.ok());
}

void Controller::Pending::Clear() {
  slot.reset();
  agreed.reset();
  variants.clear();
  from.clear();
}

NameTable<Controller::Pending>::iterator Controller::PendingFor(
    const std::string& name, uint64_t sent_at) {
  auto failed = failed_.find(name);
  if (failed != failed_.end() && sent_at < failed->second) {
    return pending_.end();
  }
  if (pending_.empty()) {
    oldest_pending_ = BatchTime();
    stalls_.Reset();
    // They were about something else.
    if (!inquiry_due_) answers_ = ActivityReplies();
  }
  const auto [it, is_new] = pending_.TryEmplace(name);
  Pending& pending = it->second;
  if (is_new) pending.since = BatchTime();
  return it;
}

TimePoint Controller::BatchTime() {
  if (!batch_time_) batch_time_ = clock_.Now();
  return *batch_time_;
}

Status Controller::AddContributor(Pending& pending, const std::string& name,
                                  int from) {
  if (std::find(pending.from.begin(), pending.from.end(), from) !=
      pending.from.end()) {
    return InternalError("readiness a second time for '" + name + "'");
  }
  pending.from.push_back(from);
  pending.last = BatchTime();
  stalls_.Asked(pending.last);
  return OkStatus();
}

Status Controller::Contribute(int from, uint64_t sent_at,
                              ResponseCache::Slot slot,
                              std::shared_ptr<const Response> agreed) {
  if (tree_.children.empty()) {
    SlotComplete(slot, std::move(agreed));
    return OkStatus();
  }
  const auto it = PendingFor(agreed->request.name, sent_at);
  if (it == pending_.end()) return OkStatus();
  Pending& pending = it->second;
  KR_RETURN_IF_ERROR(AddContributor(pending, it->first, from));
  if (pending.from.size() == 1) {
    pending.slot = slot;
    pending.agreed = std::move(agreed);
  } else if (pending.slot != slot) {
    // Some ranks mean this slot and some do not: from here on in full.
    if (pending.slot) {
      for (int other : pending.from) {
        if (other != from) ExpandSlot(pending, RanksOf(other));
      }
      pending.slot.reset();
    }
    pending.agreed = std::move(agreed);
    ExpandSlot(pending, RanksOf(from));
    pending.agreed.reset();
  }
  CompleteIfReady(it);
  return OkStatus();
}

Status Controller::Contribute(int from, uint64_t sent_at,
                              std::vector<RequestVersion> variants) {
  const auto it = PendingFor(variants.front().request.name, sent_at);
  if (it == pending_.end()) return OkStatus();
  Pending& pending = it->second;
  KR_RETURN_IF_ERROR(AddContributor(pending, it->first, from));
  if (pending.slot) {
    for (int other : pending.from) {
      if (other != from) ExpandSlot(pending, RanksOf(other));
    }
    pending.slot.reset();
    pending.agreed.reset();
  }
  for (RequestVersion& variant : variants) {
    AddVariant(pending.variants, std::move(variant));
  }
  CompleteIfReady(it);
  return OkStatus();
}

void Controller::ExpandSlot(Pending& pending,
                            const std::vector<int32_t>& ranks) {
  AddVariant(pending.variants, pending.agreed->VariantOf(ranks));
}

void Controller::CompleteIfReady(NameTable<Pending>::iterator it) {
  Pending& pending = it->second;
  if (pending.from.size() < NumContributors()) return;
  if (pending.slot && !tree_.is_root() && !cache_.IsLive(*pending.slot)) {
    // It was evicted while part of the subtree was still missing: the parent
    // may have forgotten it.
    for (int from : pending.from) ExpandSlot(pending, RanksOf(from));
    pending.slot.reset();
  }
  if (pending.slot) {
    const ResponseCache::Slot slot = *pending.slot;
    std::shared_ptr<const Response> agreed = std::move(pending.agreed);
    pending_.Erase(it);
    SlotComplete(slot, std::move(agreed));
  } else {
    const std::string name = it->first;
    std::vector<RequestVersion> variants = std::move(pending.variants);
    pending_.Erase(it);
    VariantsComplete(name, std::move(variants));
  }
}

void Controller::SlotComplete(ResponseCache::Slot slot,
                              std::shared_ptr<const Response> agreed) {
  if (tree_.is_root()) {
    Ready(slot, std::move(agreed));
  } else {
    ready_up_.slots.push_back(slot);
  }
}

void Controller::VariantsComplete(const std::string& name,
                                  std::vector<RequestVersion> variants) {
  if (!tree_.is_root()) {
    ready_up_.news.push_back(std::move(variants));
    return;
  }
  Result<Response> agreed = Agree(variants, tree_.size, ranks_);
  if (!agreed.ok()) return Fail({name}, agreed.status());
  Ready(std::nullopt,
        std::make_shared<const Response>(std::move(agreed).value()));
}

void Controller::Ready(std::optional<ResponseCache::Slot> slot,
                       std::shared_ptr<const Response> agreed) {
  Status status = CheckJoined(*agreed, joined_, ranks_);
  if (!status.ok()) return Fail({agreed->request.name}, status);
  if (slot) planner_.OnReady(*slot);
  ready_.push_back(ReadyItem{slot, std::move(agreed), clock_.Now()});
}

bool Controller::HasJoined(int32_t rank) const {
  return std::binary_search(joined_.begin(), joined_.end(), rank);
}

std::vector<int32_t> Controller::RanksOf(int from) const {
  const std::vector<int32_t>& all =
      from == tree_.rank ? self_ : tree_.children.at(from);
  if (joined_.empty()) return all;
  std::vector<int32_t> ranks;
  std::set_difference(all.begin(), all.end(), joined_.begin(), joined_.end(),
                      std::back_inserter(ranks));
  return ranks;
}

size_t Controller::NumContributors() const {
  if (joined_.empty()) return 1 + tree_.children.size();
  size_t count = HasJoined(tree_.rank) ? 0 : 1;
  for (const auto& [child, ranks] : tree_.children) {
    if (!RanksOf(child).empty()) ++count;
  }
  return count;
}

void Controller::CompleteWithoutJoined() {
  std::vector<std::string> names;
  for (const auto& [name, pending] : pending_) names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const auto it = pending_.find(name);
    if (it != pending_.end()) CompleteIfReady(it);
  }
}

std::vector<int32_t> Controller::ReadyRanks(const Pending& pending) const {
  std::vector<int32_t> ranks;
  for (int from : pending.from) {
    const std::vector<int32_t> below = RanksOf(from);
    ranks.insert(ranks.end(), below.begin(), below.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Controller::SendUp(Message message) {
  output_.messages.emplace_back(tree_.parent, EncodeMessage(message));
}

void Controller::FlushReady() {
  if (ready_up_.slots.empty() && ready_up_.news.empty()) return;
  std::sort(ready_up_.slots.begin(), ready_up_.slots.end());
  ready_up_.sequence = sequence_;
  SendUp(std::move(ready_up_));
  ready_up_ = ReadyMessage();
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
    KR_RETURN_IF_ERROR(Contribute(peer, message.sequence, slot, agreed));
  }
  for (std::vector<RequestVersion>& variants : message.news) {
    std::vector<int32_t> ranks;
    for (const RequestVersion& variant : variants) {
      ranks.insert(ranks.end(), variant.ranks.begin(), variant.ranks.end());
    }
    std::sort(ranks.begin(), ranks.end());
    const std::vector<int32_t> below = RanksOf(peer);
    if (ranks != below) {
      return InternalError("readiness for " + RanksText(ranks_.Global(ranks)) +
                           ", but below it are " +
                           RanksText(ranks_.Global(below)));
    }
    KR_RETURN_IF_ERROR(Contribute(peer, message.sequence, std::move(variants)));
  }
  ForgetEvicted();
  return OkStatus();
}

Status Controller::Handle(int peer, WaitingMessage message) {
  if (tree_.children.count(peer) == 0) {
    return InternalError("a stall report from a rank that is not below");
  }
  const TimePoint now = clock_.Now();
  std::vector<StalledTensor>& below = waiting_below_[peer];
  below.clear();
  for (WaitingMessage::Waiting& waiting : message.waiting) {
    below.push_back({std::move(waiting.name), std::move(waiting.label),
                     std::move(waiting.ranks), now - waiting.since_first,
                     now - waiting.since_last});
  }
  LookAtStalls(/*told=*/true);
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
  // What is ready now must go up under the sequence number at which it became
  // ready: these decisions may evict its slots or fail its names.
  FlushReady();
  if (!tree_.children.empty()) {
    const std::string bytes = EncodeMessage(message);
    for (const auto& [child, ranks] : tree_.children) {
      output_.messages.emplace_back(child, bytes);
    }
  }
  for (const Decision& decision : message.decisions) {
    KR_RETURN_IF_ERROR(Apply(decision));
    if (decision.kind == Decision::Kind::kJoin) {
      CompleteWithoutJoined();
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
  const auto child = tree_.children.find(peer);
  const bool below = child != tree_.children.end() &&
                     std::binary_search(child->second.begin(),
                                        child->second.end(), message.rank);
  if (!below || HasJoined(message.rank)) {
    return InternalError("a join of rank " + std::to_string(message.rank) +
                         ", which is not below or has joined");
  }
  if (tree_.is_root()) {
    DecideJoin(message.rank);
  } else {
    SendUp(std::move(message));
  }
  return OkStatus();
}

Status Controller::Handle(int peer, ByeMessage) {
  byes_.insert(peer);
  return OkStatus();
}

Status Controller::Handle(int peer, StallQuery message) {
  if (peer != tree_.parent) {
    return InternalError("a question from a rank that is not the parent");
  }
  for (const auto& [child, below] : tree_.children) {
    StallQuery part = message;
    part.ranks.clear();
    std::set_intersection(message.ranks.begin(), message.ranks.end(),
                          below.begin(), below.end(),
                          std::back_inserter(part.ranks));
    if (part.ranks.empty()) continue;
    output_.messages.emplace_back(child, EncodeMessage(part));
  }
  if (std::binary_search(message.ranks.begin(), message.ranks.end(),
                         tree_.rank)) {
    SendUp(ActivityReply{message.question, tree_.rank,
                         DescribeActivity(message.awaits)});
  }
  return OkStatus();
}

Status Controller::Handle(int peer, ActivityReply message) {
  const auto child = tree_.children.find(peer);
  if (child == tree_.children.end() ||
      !std::binary_search(child->second.begin(), child->second.end(),
                          message.rank)) {
    return InternalError("what rank " + std::to_string(message.rank) +
                         " does, from a rank that it is not below");
  }
  if (!tree_.is_root()) {
    SendUp(std::move(message));
    return OkStatus();
  }
  if (message.question != question_ || !inquiry_due_) return OkStatus();
  answers_.activity[message.rank] = std::move(message.activity);
  if (answers_.activity.size() == answers_.asked.size()) ConcludeInquiry();
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

void Controller::DecideReady() {
  while (!ready_.empty() && outstanding_ < options_.max_outstanding &&
         !ended_) {
    if (clock_.Now() < ready_.front().since + options_.linger) return;
    Decision decision;
    decision.kind = Decision::Kind::kExecute;
    for (size_t index : NextReady()) {
      ReadyItem& item = ready_[index];
      // The slot may have been evicted since its ranks became ready.
      if (item.slot && cache_.IsLive(*item.slot)) {
        decision.slots.push_back(*item.slot);
      } else {
        decision.news.push_back(item.agreed);
      }
      item.agreed.reset();
    }
    std::sort(decision.slots.begin(), decision.slots.end());
    ready_.erase(std::remove_if(ready_.begin(), ready_.end(),
                                [](const ReadyItem& i) { return !i.agreed; }),
                 ready_.end());
    ++outstanding_;
    planner_.OnDecided(decision.slots);
    Decide(std::move(decision));
  }
}

// Indices into ready_. The bucket that is planned for the first, if it is
// complete; else what goes with it of all that no complete bucket claims.
std::vector<size_t> Controller::NextReady() {
  std::vector<int> bucket_of(ready_.size(), -1);
  std::vector<size_t> count(planner_.num_buckets(), 0);
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (!ready_[i].slot) continue;
    bucket_of[i] = planner_.BucketOf(*ready_[i].slot);
    if (bucket_of[i] >= 0) ++count[bucket_of[i]];
  }
  auto complete = [&](int bucket) {
    return bucket >= 0 && count[bucket] == planner_.BucketSize(bucket);
  };
  std::vector<size_t> bucket;
  if (complete(bucket_of[0])) {
    for (size_t i = 0; i < ready_.size(); ++i) {
      if (bucket_of[i] == bucket_of[0]) bucket.push_back(i);
    }
    planner_.OnComplete(bucket_of[0]);
    return bucket;
  }
  std::vector<const Request*> requests;
  std::vector<size_t> indices;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (complete(bucket_of[i])) continue;
    requests.push_back(&ready_[i].agreed->request);
    indices.push_back(i);
  }
  for (size_t index : NextBucket(requests, options_.fusion_threshold)) {
    bucket.push_back(indices[index]);
  }
  if (bucket_of[0] >= 0) planner_.OnMissed(bucket_of[0]);
  return bucket;
}

void Controller::Decide(Decision decision) {
  if (ended_) return;
  Status applied = Apply(decision);
  KR_CHECK(applied.ok());  // our own decision
  decided_.decisions.push_back(std::move(decision));
}

void Controller::DecideJoin(int32_t rank) {
  Decision decision;
  decision.kind = Decision::Kind::kJoin;
  decision.rank = rank;
  Decide(std::move(decision));
  CompleteWithoutJoined();
}

void Controller::Fail(std::vector<std::string> names, const Status& status) {
  Decision decision;
  decision.kind = Decision::Kind::kFail;
  decision.names = std::move(names);
  decision.status = status;
  Decide(std::move(decision));
}

void Controller::EndJob(const LeaveMessage& leave) {
  Decision decision;
  decision.kind = Decision::Kind::kEnd;
  const std::string who = "rank " + std::to_string(ranks_.Global(leave.rank));
  std::string why = " ended with " + leave.reason;
  if (leave.reason.empty()) {
    why = ranks_.is_job()
              ? " has shut down (its program ended or called shutdown()), so "
                "no collective can complete any more"
              : " has removed it or shut down, so none of its collectives can "
                "complete any more";
  }
  decision.status = UnavailableError(ranks_.Text() + " is over: " + who + why);
  Decide(std::move(decision));
}

Status Controller::Apply(const Decision& decision) {
  Command command;
  command.kind = decision.kind;
  command.sequence = ++sequence_;
  switch (decision.kind) {
    case Decision::Kind::kExecute:
      // Touch before insert: an insertion may evict, and what this decision
      // uses must not be what goes.
      command.joined = joined_;
      command.items.reserve(decision.slots.size() + decision.news.size());
      for (uint64_t slot : decision.slots) {
        const std::shared_ptr<const Response>& agreed = cache_.At(slot);
        if (agreed == nullptr) {
          return InternalError("a decision for the unknown slot " +
                               std::to_string(slot));
        }
        cache_.Touch(slot);
        command.items.push_back(agreed);
      }
      for (const auto& agreed : decision.news) {
        cache_.Insert(agreed, sequence_);
        command.items.push_back(agreed);
      }
      KR_RETURN_IF_ERROR(CheckBucket(command.items));
      KR_RETURN_IF_ERROR(CheckNonePends(command.items));
      for (const auto& item : command.items) {
        ForgetWaitingBelow(item->request.name);
      }
      // A rank that has joined since this was agreed on brings nothing of its
      // own any more.
      for (auto& item : command.items) {
        if (item->DependsOn(joined_)) {
          item = std::make_shared<const Response>(item->Without(joined_));
        }
      }
      break;
    case Decision::Kind::kFail:
      for (const std::string& name : decision.names) {
        pending_.Erase(name);
        ForgetWaitingBelow(name);
        failed_[name] = sequence_;
      }
      command.names = decision.names;
      command.status = decision.status;
      break;
    case Decision::Kind::kEnd:
      ended_ = true;
      pending_.Clear();
      ready_.clear();
      command.status = decision.status;
      break;
    case Decision::Kind::kPlan:
      for (const std::vector<ResponseCache::Slot>& slots : decision.plan) {
        command.plan.emplace_back();
        for (ResponseCache::Slot slot : slots) {
          if (!cache_.IsLive(slot)) {
            return InternalError("a plan with the unknown slot " +
                                 std::to_string(slot));
          }
          command.plan.back().push_back(cache_.At(slot)->request.name);
        }
      }
      break;
    case Decision::Kind::kJoin:
      if (HasJoined(decision.rank)) {
        return InternalError("rank " + std::to_string(decision.rank) +
                             " has joined twice");
      }
      joined_.insert(
          std::upper_bound(joined_.begin(), joined_.end(), decision.rank),
          decision.rank);
      command.rank = decision.rank;
      command.all_joined = joined_.size() == static_cast<size_t>(tree_.size);
      if (command.all_joined) joined_.clear();
      stalls_.SetJoined(joined_);
      break;
  }
  output_.commands.push_back(std::move(command));
  ForgetEvicted();
  return OkStatus();
}

// What this node has not told to be ready, its parent cannot decide on.
Status Controller::CheckNonePends(
    const std::vector<std::shared_ptr<const Response>>& items) {
  if (tree_.is_root() || pending_.empty()) return OkStatus();
  for (const auto& item : items) {
    if (pending_.find(item->request.name) == pending_.end()) continue;
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
  for (auto it = failed_.begin(); it != failed_.end();) {
    it = it->second <= everyone ? failed_.erase(it) : std::next(it);
  }
}

void Controller::OnExecuted(int count) {
  KR_DCHECK(thread_.IsOwner());
  // Only the coordinator paces decisions by its own data thread.
  if (!tree_.is_root()) return;
  outstanding_ -= count;
  for (int i = 0; i < count; ++i) planner_.OnExecuted();
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
  batch_time_.reset();
  if (tree_.is_root()) {
    // Before anything new is decided: all its slots are live now.
    if (std::optional<StepPlan> plan = planner_.NewPlan()) {
      Decision decision;
      decision.kind = Decision::Kind::kPlan;
      decision.plan = std::move(*plan);
      Decide(std::move(decision));
    }
    DecideReady();
  }
  FlushReady();
  if (!decided_.decisions.empty()) {
    const std::string bytes = EncodeMessage(std::move(decided_));
    decided_ = DecisionMessage();
    for (const auto& [child, ranks] : tree_.children) {
      output_.messages.emplace_back(child, bytes);
    }
  }
  return std::exchange(output_, Output());
}

// --- Timers ---

std::optional<TimePoint> Controller::NextTimer() const {
  KR_DCHECK(thread_.IsOwner());
  std::optional<TimePoint> oldest;
  if (!pending_.empty()) oldest = oldest_pending_;
  std::optional<TimePoint> next = stalls_.NextCheck(oldest);
  if (inquiry_due_ && (!next || *inquiry_due_ < *next)) next = inquiry_due_;
  if (!ready_.empty() && outstanding_ < options_.max_outstanding) {
    TimePoint linger = ready_.front().since + options_.linger;
    if (!next || linger < *next) next = linger;
  }
  return next;
}

void Controller::OnTimer() {
  KR_DCHECK(thread_.IsOwner());
  const TimePoint now = clock_.Now();
  if (inquiry_due_ && now >= *inquiry_due_) ConcludeInquiry();
  if (pending_.empty()) {
    // What waits below is told again by those below.
    if (!inquiry_due_) {
      stalls_.Reset();
      waiting_below_.clear();
    }
    return;
  }
  const std::optional<TimePoint> due = stalls_.NextCheck(oldest_pending_);
  if (!due || now < *due) return;
  oldest_pending_ = now;
  for (const auto& [name, pending] : pending_) {
    oldest_pending_ = std::min(oldest_pending_, pending.since);
  }
  LookAtStalls(/*told=*/false);
  for (const StalledTensor& tensor : ListStalls()) {
    Status verdict = stalls_.Verdict(tensor, answers_, now);
    if (!verdict.ok()) FailStalled({tensor}, verdict);
  }
}

void Controller::LookAtStalls(bool told) {
  const TimePoint now = clock_.Now();
  const std::vector<StalledTensor> stalled = ListStalls();
  if (stalled.empty()) return;
  TimePoint oldest = now, youngest{};
  for (const StalledTensor& tensor : stalled) {
    oldest = std::min(oldest, tensor.since);
    youngest = std::max(youngest, tensor.last);
  }
  const bool report = stalls_.ReportDue(now, oldest);
  if (!report && !told && !stalls_.LookDue(now)) return;
  stalls_.Looked(now, youngest);
  if (tree_.is_root()) {
    QueryStalls(report);
  } else {
    ReportStallsUp();
  }
}

void Controller::QueryStalls(bool report) {
  report_wanted_ = report_wanted_ || report;
  // The last round is not over; its end has all that is known now.
  if (inquiry_due_) return;
  const std::vector<StalledTensor> stalled = ListStalls();
  if (!report && !MayBeDeadlock(stalled)) return;
  answers_ = stalls_.MakeQuery(stalled);
  ++question_;
  inquiry_due_ = clock_.Now() + kAnswerLimit;
  StallQuery ask{question_, {}, answers_.names};
  for (const auto& [child, below] : tree_.children) {
    ask.ranks.clear();
    std::set_intersection(answers_.asked.begin(), answers_.asked.end(),
                          below.begin(), below.end(),
                          std::back_inserter(ask.ranks));
    if (ask.ranks.empty()) continue;
    output_.messages.emplace_back(child, EncodeMessage(ask));
  }
  if (std::binary_search(answers_.asked.begin(), answers_.asked.end(),
                         tree_.rank)) {
    answers_.activity[tree_.rank] = DescribeActivity(answers_.names);
  }
  if (answers_.activity.size() == answers_.asked.size()) ConcludeInquiry();
}

void Controller::ConcludeInquiry() {
  inquiry_due_.reset();
  const bool report = std::exchange(report_wanted_, false);
  const std::vector<StalledTensor> stalled = ListStalls();
  // It may have come together while the others answered.
  if (stalled.empty()) return;
  if (report) {
    output_.reports.push_back(stalls_.Report(stalled, answers_, clock_.Now()));
  }
  if (!MayBeDeadlock(stalled)) return;
  const Status deadlock = stalls_.Deadlock(stalled, answers_);
  if (!deadlock.ok()) FailStalled(stalled, deadlock);
}

bool Controller::MayBeDeadlock(
    const std::vector<StalledTensor>& stalled) const {
  if (options_.stall_check_time == Duration::zero()) return false;
  if (!ready_.empty() || outstanding_ > 0) return false;
  const TimePoint now = clock_.Now();
  for (const StalledTensor& tensor : stalled) {
    if (now - tensor.last < options_.stall_check_time) return false;
  }
  return !stalls_.Deadlock(stalled, ActivityReplies()).ok();
}

RankActivity Controller::DescribeActivity(
    const std::vector<std::string>& names) const {
  return options_.describe_doing
             ? options_.describe_doing(names)
             : keras_ring::DescribeActivity({}, names, clock_.Now());
}

void Controller::ForgetWaitingBelow(const std::string& name) {
  for (auto& [child, waiting] : waiting_below_) {
    waiting.erase(
        std::remove_if(waiting.begin(), waiting.end(),
                       [&](const auto& one) { return one.name == name; }),
        waiting.end());
  }
}

// What waits here, joined with what inner nodes below have reported of
// subtrees that are not complete yet.
std::vector<StalledTensor> Controller::ListStalls() const {
  std::map<std::string, StalledTensor> stalled;
  for (const auto& [name, pending] : pending_) {
    const Request& request = pending.agreed ? pending.agreed->request
                                            : pending.variants.front().request;
    stalled[name] = StalledTensor{name, request.Label(), ReadyRanks(pending),
                                  pending.since, pending.last};
  }
  for (const auto& [child, below] : waiting_below_) {
    for (const StalledTensor& waiting : below) {
      auto [it, is_new] = stalled.try_emplace(waiting.name, waiting);
      if (is_new) continue;
      StalledTensor& tensor = it->second;
      std::vector<int32_t> ranks;
      std::set_union(tensor.ranks.begin(), tensor.ranks.end(),
                     waiting.ranks.begin(), waiting.ranks.end(),
                     std::back_inserter(ranks));
      tensor.ranks = std::move(ranks);
      tensor.since = std::min(tensor.since, waiting.since);
      tensor.last = std::max(tensor.last, waiting.last);
    }
  }
  std::vector<StalledTensor> list;
  for (auto& [name, tensor] : stalled) list.push_back(std::move(tensor));
  return list;
}

void Controller::ReportStallsUp() {
  WaitingMessage message;
  const TimePoint now = clock_.Now();
  for (const StalledTensor& tensor : ListStalls()) {
    message.waiting.push_back({tensor.label, tensor.name, tensor.ranks,
                               now - tensor.since, now - tensor.last});
  }
  SendUp(std::move(message));
}

void Controller::FailStalled(const std::vector<StalledTensor>& stalled,
                             const Status& status) {
  if (!tree_.is_root()) return;
  std::vector<std::string> names;
  for (const StalledTensor& tensor : stalled) names.push_back(tensor.name);
  Fail(std::move(names), status);
}

}  // namespace keras_ring
