#include "csrc/control/stall_monitor.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace keras_ring {
namespace {

// How long a report waits for ranks to say what they are doing. They answer
// whatever their program does, so a rank that has not answered by then will
// not.
constexpr Duration kAnswerLimit = std::chrono::seconds(1);

// Between two looks of a node: a part of the check time, and not more than
// this.
constexpr Duration kLongestPeriod = std::chrono::seconds(1);
constexpr int kLooksPerCheck = 8;
// Reports that nodes of one level make at the same time come up level by level.
// For each level below it, a node waits for the period divided by this.
constexpr int kLevelsPerPeriod = 16;

Duration LookPeriod(Duration check_time) {
  return std::min(kLongestPeriod, check_time / kLooksPerCheck);
}

std::optional<TimePoint> Earlier(std::optional<TimePoint> a,
                                 std::optional<TimePoint> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// When a rank last asked for something that waits.
TimePoint Youngest(const std::vector<StalledTensor>& stalled) {
  TimePoint youngest{};
  for (const StalledTensor& tensor : stalled) {
    youngest = std::max(youngest, tensor.last);
  }
  return youngest;
}

}  // namespace

StallMonitor::StallMonitor(const ControlTree& tree, const RankSet& ranks,
                           StallOptions options, const Clock& clock, Node& node)
    : tree_(tree),
      options_(std::move(options)),
      clock_(clock),
      node_(node),
      // Only the coordinator fails anything.
      inspector_(tree.size, options_.check_time,
                 tree.is_root() ? options_.shutdown_time : Duration::zero(),
                 ranks),
      period_(LookPeriod(options_.check_time)),
      // Leaves have nothing to report.
      gather_(period_ / kLevelsPerPeriod * std::max(0, tree.levels_below - 1)) {
}

void StallMonitor::OnPending(TimePoint now, bool first) {
  if (first) {
    inspector_.Reset();
    // The old replies were about other tensors.
    if (!inquiry_due_) answers_ = ActivityReplies();
    if (!inquiry_due_ && waiting_below_.empty()) report_wanted_ = false;
  }
  inspector_.Asked(now);
}

void StallMonitor::Forget(const std::string& name) {
  if (waiting_below_.empty()) return;
  for (const auto& [child, below] : tree_.children) OnReady(child, name);
}

void StallMonitor::OnReady(int child, const std::string& name) {
  if (waiting_below_.empty()) return;
  const auto below = waiting_below_.find(child);
  if (below == waiting_below_.end()) return;
  std::vector<StalledTensor>& waiting = below->second;
  waiting.erase(std::remove_if(
                    waiting.begin(), waiting.end(),
                    [&](const StalledTensor& one) { return one.name == name; }),
                waiting.end());
  if (waiting.empty()) waiting_below_.erase(below);
}

Status StallMonitor::Handle(int peer, WaitingMessage message) {
  if (tree_.children.count(peer) == 0) {
    return InternalError("a stall report from a rank that is not below");
  }
  if (message.sequence > node_.Sequence()) {
    return InternalError("a stall report from the future: decision " +
                         std::to_string(message.sequence) + " of " +
                         std::to_string(node_.Sequence()));
  }
  const TimePoint now = clock_.Now();
  std::vector<StalledTensor> below;
  for (WaitingMessage::Waiting& waiting : message.waiting) {
    if (node_.HasFailedSince(waiting.name, message.sequence)) continue;
    below.push_back({std::move(waiting.name), std::move(waiting.label),
                     std::move(waiting.ranks), now - waiting.since_first,
                     now - waiting.since_last});
  }
  if (below.empty()) {
    waiting_below_.erase(peer);
    return OkStatus();
  }
  waiting_below_[peer] = std::move(below);
  LookSoon(now);
  return OkStatus();
}

Status StallMonitor::Handle(int peer, StallQuery query) {
  if (peer != tree_.parent) {
    return InternalError("a question from a rank that is not the parent");
  }
  AskBelow(query);
  if (std::binary_search(query.ranks.begin(), query.ranks.end(), tree_.rank)) {
    node_.Send(tree_.parent, ActivityReply{query.question, tree_.rank,
                                           Describe(query.awaits)});
  }
  return OkStatus();
}

Status StallMonitor::Handle(int peer, ActivityReply reply) {
  const auto child = tree_.children.find(peer);
  if (child == tree_.children.end() ||
      !std::binary_search(child->second.begin(), child->second.end(),
                          reply.rank)) {
    return InternalError("what rank " + std::to_string(reply.rank) +
                         " does, from a rank that it is not below");
  }
  if (!tree_.is_root()) {
    node_.Send(tree_.parent, std::move(reply));
    return OkStatus();
  }
  if (reply.question != question_ || !inquiry_due_) return OkStatus();
  answers_.activity[reply.rank] = std::move(reply.activity);
  if (answers_.activity.size() == answers_.asked.size()) Conclude();
  return OkStatus();
}

std::optional<TimePoint> StallMonitor::NextTimer(
    std::optional<TimePoint> oldest) const {
  return Earlier(inspector_.NextCheck(OldestWith(oldest)),
                 Earlier(look_due_, inquiry_due_));
}

bool StallMonitor::CheckDue(TimePoint now, TimePoint oldest) const {
  const std::optional<TimePoint> due = inspector_.NextCheck(OldestWith(oldest));
  return due && now >= *due;
}

void StallMonitor::OnTimer(TimePoint now, std::optional<TimePoint> oldest) {
  if (inquiry_due_ && now >= *inquiry_due_) Conclude();
  if (const std::optional<TimePoint> waits = OldestWith(oldest)) {
    if (CheckDue(now, *waits)) Check(now);
  } else if (!inquiry_due_ && !look_due_) {
    inspector_.Reset();
  }
  if (look_due_ && now >= *look_due_) Look(now);
}

std::optional<TimePoint> StallMonitor::OldestWith(
    std::optional<TimePoint> oldest) const {
  if (!tree_.is_root()) return oldest;
  for (const auto& [child, below] : waiting_below_) {
    for (const StalledTensor& tensor : below) {
      oldest = Earlier(oldest, tensor.since);
    }
  }
  return oldest;
}

void StallMonitor::Check(TimePoint now) {
  const std::vector<StalledTensor> stalled = List();
  if (stalled.empty()) return;
  TimePoint oldest = now;
  for (const StalledTensor& tensor : stalled) {
    oldest = std::min(oldest, tensor.since);
  }
  const bool report = inspector_.ReportDue(now, oldest);
  report_wanted_ = report_wanted_ || report;
  if (report || inspector_.LookDue(now)) {
    inspector_.Looked(now, Youngest(stalled));
    LookSoon(now);
  }
  for (const StalledTensor& tensor : List()) {  // without what has failed now
    const Status verdict = inspector_.Verdict(tensor, answers_, now);
    if (!verdict.ok()) FailAll({tensor}, verdict);
  }
}

void StallMonitor::LookSoon(TimePoint now) {
  if (look_due_) return;
  look_due_ = now + gather_;
  if (looked_) look_due_ = std::max(*look_due_, *looked_ + period_);
  if (now >= *look_due_) Look(now);
}

void StallMonitor::Look(TimePoint now) {
  look_due_.reset();
  const std::vector<StalledTensor> stalled = List();
  if (stalled.empty()) return;
  looked_ = now;
  inspector_.Looked(now, Youngest(stalled));
  if (tree_.is_root()) {
    Query(stalled);
  } else {
    ReportUp(stalled);
  }
}

void StallMonitor::Query(const std::vector<StalledTensor>& stalled) {
  // The last round is not over; its end has all that is known now.
  if (inquiry_due_) return;
  if (!report_wanted_ && !MayBeDeadlock(stalled)) return;
  answers_ = inspector_.MakeQuery(stalled);
  ++question_;
  inquiry_due_ = clock_.Now() + kAnswerLimit;
  AskBelow(StallQuery{question_, answers_.asked, answers_.names});
  if (std::binary_search(answers_.asked.begin(), answers_.asked.end(),
                         tree_.rank)) {
    answers_.activity[tree_.rank] = Describe(answers_.names);
  }
  if (answers_.activity.size() == answers_.asked.size()) Conclude();
}

void StallMonitor::AskBelow(const StallQuery& query) {
  for (const auto& [child, below] : tree_.children) {
    StallQuery part{query.question, {}, query.awaits};
    std::set_intersection(query.ranks.begin(), query.ranks.end(), below.begin(),
                          below.end(), std::back_inserter(part.ranks));
    if (!part.ranks.empty()) node_.Send(child, std::move(part));
  }
}

void StallMonitor::Conclude() {
  inquiry_due_.reset();
  const bool report = std::exchange(report_wanted_, false);
  const std::vector<StalledTensor> stalled = List();
  // It may have come together while the others answered.
  if (stalled.empty()) return;
  if (report) node_.Report(inspector_.Report(stalled, answers_, clock_.Now()));
  if (!MayBeDeadlock(stalled)) return;
  const Status deadlock = inspector_.Deadlock(stalled, answers_);
  if (!deadlock.ok()) FailAll(stalled, deadlock);
}

bool StallMonitor::MayBeDeadlock(
    const std::vector<StalledTensor>& stalled) const {
  if (options_.check_time == Duration::zero() || !node_.Idle()) return false;
  const TimePoint now = clock_.Now();
  for (const StalledTensor& tensor : stalled) {
    if (now - tensor.last < options_.check_time) return false;
  }
  return !inspector_.Deadlock(stalled, ActivityReplies()).ok();
}

RankActivity StallMonitor::Describe(
    const std::vector<std::string>& names) const {
  return options_.describe ? options_.describe(names)
                           : DescribeActivity({}, names, clock_.Now());
}

std::vector<StalledTensor> StallMonitor::List() const {
  std::map<std::string, StalledTensor> stalled;
  for (StalledTensor& tensor : node_.ListPending()) {
    stalled.emplace(tensor.name, std::move(tensor));
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

void StallMonitor::ReportUp(const std::vector<StalledTensor>& stalled) {
  WaitingMessage message;
  message.sequence = node_.Sequence();
  const TimePoint now = clock_.Now();
  for (const StalledTensor& tensor : stalled) {
    message.waiting.push_back({tensor.label, tensor.name, tensor.ranks,
                               now - tensor.since, now - tensor.last});
  }
  node_.Send(tree_.parent, std::move(message));
}

void StallMonitor::FailAll(const std::vector<StalledTensor>& stalled,
                           const Status& status) {
  if (!tree_.is_root()) return;
  std::vector<std::string> names;
  for (const StalledTensor& tensor : stalled) names.push_back(tensor.name);
  node_.Fail(std::move(names), status);
}

}  // namespace keras_ring
