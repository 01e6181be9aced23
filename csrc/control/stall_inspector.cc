#include "csrc/control/stall_inspector.h"

#include <algorithm>
#include <set>

#include "csrc/control/request.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxListed = 10;

// More would make reports long, and the coordinator busy.
constexpr size_t kMaxAsked = 16;

}  // namespace

std::optional<TimePoint> StallInspector::NextCheck(
    const std::optional<TimePoint>& oldest) const {
  if (!oldest) return std::nullopt;
  std::optional<TimePoint> next;
  auto consider = [&next](TimePoint at) {
    if (!next || at < *next) next = at;
  };
  if (check_time_ > Duration::zero()) {
    consider(next_report_.value_or(*oldest + check_time_));
    if (next_look_) consider(*next_look_);
  }
  if (shutdown_time_ > Duration::zero()) consider(*oldest + shutdown_time_);
  return next;
}

bool StallInspector::ReportDue(TimePoint now, TimePoint oldest) {
  if (check_time_ == Duration::zero()) return false;
  // The earlier tensors may be complete, and other ones wait now.
  if (!next_report_ || now - oldest < check_time_) {
    next_report_ = oldest + check_time_;
    interval_ = check_time_;
  }
  if (now < *next_report_) return false;
  interval_ *= 2;
  next_report_ = now + interval_;
  return true;
}

void StallInspector::Looked(TimePoint now, TimePoint youngest) {
  looked_ = true;
  next_look_.reset();
  if (youngest + check_time_ > now) next_look_ = youngest + check_time_;
}

void StallInspector::Reset() {
  next_report_.reset();
  looked_ = false;
  next_look_.reset();
}

std::vector<int32_t> StallInspector::Missing(
    const StalledTensor& tensor) const {
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < size_; ++rank) {
    if (!joined_.Contains(rank) &&
        !std::binary_search(tensor.ranks.begin(), tensor.ranks.end(), rank)) {
      missing.push_back(rank);
    }
  }
  return missing;
}

std::string StallInspector::WhoseText(const StalledTensor& tensor) const {
  return "asked for by " + RanksText(ranks_.Global(tensor.ranks)) +
         ", missing " + RanksText(ranks_.Global(Missing(tensor)));
}

std::string StallInspector::JoinedText() const {
  if (joined_.empty()) return "";
  std::string text =
      RanksText(ranks_.Global({joined_.begin(), joined_.end()})) +
      (joined_.size() > 1 ? " have joined and bring"
                          : " has joined and brings");
  text.front() = 'R';
  return " " + text + " nothing.";
}

ActivityReplies StallInspector::MakeQuery(
    const std::vector<StalledTensor>& stalled) const {
  ActivityReplies answers;
  std::set<int32_t> ranks;
  for (const StalledTensor& tensor : stalled) {
    if (answers.names.size() < kMaxListed) answers.names.push_back(tensor.name);
    for (int32_t rank : Missing(tensor)) ranks.insert(rank);
  }
  for (int32_t rank : ranks) {
    if (answers.asked.size() < kMaxAsked) answers.asked.push_back(rank);
  }
  return answers;
}

std::string StallInspector::DoingText(const std::vector<int32_t>& ranks,
                                      const ActivityReplies& answers) const {
  std::string text;
  for (int32_t rank : ranks) {
    if (!std::binary_search(answers.asked.begin(), answers.asked.end(), rank)) {
      continue;
    }
    text += "\n  Rank " + std::to_string(ranks_.Global(rank)) + " ";
    const auto it = answers.activity.find(rank);
    if (it == answers.activity.end()) {
      text += "does not answer: its process is stopped, or its host is busy.";
    } else {
      text += it->second.text + ".";
    }
  }
  return text;
}

std::string StallInspector::SubjectText(
    const std::vector<int32_t>& ranks) const {
  std::string who = RanksText(ranks_.Global(ranks));
  who.front() = 'R';
  return who + (ranks.size() > 1 ? " have" : " has");
}

// Tensors are matched by name, so names tell: a rank that has asked before for
// the names that others wait for has been in their loop, and has left it.
std::string StallInspector::Explanation(
    const std::vector<StalledTensor>& stalled,
    const ActivityReplies& answers) const {
  // `idle`: in no collective. `novices`: lack a name that is new to them.
  std::vector<int32_t> elsewhere, unaware, idle, novices;
  for (const auto& [rank, activity] : answers.activity) {
    size_t known = 0, unknown = 0;
    for (const StalledTensor& tensor : stalled) {
      const auto name =
          std::find(answers.names.begin(), answers.names.end(), tensor.name);
      const size_t i = name - answers.names.begin();
      if (i >= activity.knows.size() ||
          std::binary_search(tensor.ranks.begin(), tensor.ranks.end(), rank)) {
        continue;
      }
      ++(activity.knows[i] ? known : unknown);
    }
    if (activity.waits.empty()) {
      if (known > 0) idle.push_back(rank);
      continue;
    }
    if (known > 0) elsewhere.push_back(rank);
    if (unknown == 0) continue;
    novices.push_back(rank);
    if (known == 0) unaware.push_back(rank);
  }
  if (!elsewhere.empty()) {
    const bool many = elsewhere.size() > 1;
    return " " + SubjectText(elsewhere) +
           " asked for some of these before, and " + (many ? "wait" : "waits") +
           " for something else now: either the ranks have different numbers "
           "of steps, or some are in an evaluation, a callback or a branch "
           "that others are not in." +
           (novices.empty()
                ? std::string()
                : " " + SubjectText(novices) +
                      " not asked for others of these lately, so the ranks may "
                      "also use different sets of tensors.");
  }
  if (!unaware.empty()) {
    return " " + SubjectText(unaware) +
           " not asked for any of these lately: the ranks use different sets "
           "of tensors, or names that differ.";
  }
  if (!idle.empty()) {
    const bool many = idle.size() > 1;
    return " " + SubjectText(idle) + " asked for some of these before, and " +
           (many ? "are" : "is") +
           " in no collective now: " + (many ? "they" : "it") +
           " may be in an evaluation, a callback or a save that others are not "
           "in, wait for data, or have come to the end of " +
           (many ? "their" : "its") + " steps.";
  }
  return "";
}

std::string StallInspector::Report(const std::vector<StalledTensor>& stalled,
                                   const ActivityReplies& answers,
                                   TimePoint now) const {
  std::string text = "Stalled: " + std::to_string(stalled.size()) +
                     (stalled.size() == 1 ? " tensor waits" : " tensors wait") +
                     " for ranks that have not asked for them" +
                     (ranks_.is_job() ? "." : ", in " + ranks_.Text() + ".");
  for (size_t i = 0; i < std::min(stalled.size(), kMaxListed); ++i) {
    const StalledTensor& tensor = stalled[i];
    text += "\n  " + tensor.label + ": " + SecondsText(now - tensor.since) +
            ", " + WhoseText(tensor) + ".";
  }
  if (stalled.size() > kMaxListed) text += "\n  ...";
  if (!joined_.empty()) text += "\n " + JoinedText();
  const std::string activity = DoingText(answers.asked, answers);
  if (!activity.empty()) text += "\nMeanwhile:" + activity;
  const std::string explanation = Explanation(stalled, answers);
  if (!explanation.empty()) return text + "\n" + explanation.substr(1);
  return text +
         "\nThe usual causes: a collective that only some ranks reach (inside "
         "`if rank == 0`, or after an exception), ranks with different numbers "
         "of steps, or a rank that is still busy.";
}

Status StallInspector::Verdict(const StalledTensor& tensor,
                               const ActivityReplies& answers,
                               TimePoint now) const {
  if (shutdown_time_ == Duration::zero() ||
      now - tensor.since < shutdown_time_) {
    return OkStatus();
  }
  return DeadlineExceededError(
      tensor.label + ": stalled for " + SecondsText(now - tensor.since) +
      " (KERAS_RING_STALL_SHUTDOWN_TIME is " + SecondsText(shutdown_time_) +
      "): " + WhoseText(tensor) + "." + JoinedText() +
      DoingText(Missing(tensor), answers));
}

Status StallInspector::Deadlock(const std::vector<StalledTensor>& stalled,
                                const ActivityReplies& answers) const {
  std::map<std::vector<int32_t>, std::string> labels_by_ranks;
  std::vector<bool> waits(size_, false);
  for (int32_t rank : joined_) waits[rank] = true;
  for (const StalledTensor& tensor : stalled) {
    std::string& labels = labels_by_ranks[tensor.ranks];
    labels += (labels.empty() ? "" : ", ") + tensor.label;
    for (int32_t rank : tensor.ranks) waits[rank] = true;
  }
  if (std::find(waits.begin(), waits.end(), false) != waits.end()) {
    return OkStatus();
  }
  std::string text = "every rank " +
                     (ranks_.is_job() ? "" : "of " + ranks_.Text() + " ") +
                     "waits, each for a tensor that others have not asked for:";
  for (const auto& [ranks, labels] : labels_by_ranks) {
    text += " " + RanksText(ranks_.Global(ranks)) +
            (ranks.size() > 1 ? " wait for " : " waits for ") + labels + ";";
  }
  text.back() = '.';
  return FailedPreconditionError(
      text + JoinedText() + Explanation(stalled, answers) +
      " Tensors are matched by name, so every rank must use the same "
      "names.");
}

}  // namespace keras_ring
