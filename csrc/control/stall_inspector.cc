#include "csrc/control/stall_inspector.h"

#include <algorithm>
#include <sstream>

#include "csrc/control/request.h"

namespace keras_ring {
namespace {

constexpr size_t kMaxListed = 10;

std::string SecondsText(Duration duration) {
  std::ostringstream stream;
  stream.precision(3);
  stream << std::chrono::duration<double>(duration).count() << " s";
  return stream.str();
}

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
  }
  if (shutdown_time_ > Duration::zero()) consider(*oldest + shutdown_time_);
  return next;
}

bool StallInspector::ReportDue(TimePoint now, TimePoint oldest) {
  if (check_time_ == Duration::zero()) return false;
  if (!next_report_) {
    next_report_ = oldest + check_time_;
    interval_ = check_time_;
  }
  if (now < *next_report_) return false;
  interval_ *= 2;
  next_report_ = now + interval_;
  return true;
}

std::vector<int32_t> StallInspector::Missing(
    const StalledTensor& tensor) const {
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < size_; ++rank) {
    if (!HasJoined(rank) &&
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

bool StallInspector::HasJoined(int32_t rank) const {
  return std::binary_search(joined_.begin(), joined_.end(), rank);
}

std::string StallInspector::JoinedText() const {
  if (joined_.empty()) return "";
  std::string text = RanksText(ranks_.Global(joined_)) +
                     (joined_.size() > 1 ? " have joined and bring"
                                         : " has joined and brings");
  text.front() = 'R';
  return " " + text + " nothing.";
}

std::string StallInspector::Report(const std::vector<StalledTensor>& stalled,
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
  return text +
         "\nThe usual causes: a collective that only some ranks reach (inside "
         "`if rank == 0`, or after an exception), ranks with different numbers "
         "of steps, or a rank that is still busy.";
}

Status StallInspector::Verdict(const StalledTensor& tensor,
                               TimePoint now) const {
  if (shutdown_time_ == Duration::zero() ||
      now - tensor.since < shutdown_time_) {
    return OkStatus();
  }
  return DeadlineExceededError(
      tensor.label + ": stalled for " + SecondsText(now - tensor.since) +
      " (KERAS_RING_STALL_SHUTDOWN_TIME is " + SecondsText(shutdown_time_) +
      "): " + WhoseText(tensor) + "." + JoinedText());
}

Status StallInspector::Deadlock(
    const std::vector<StalledTensor>& stalled) const {
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
      text + JoinedText() +
      " Tensors are matched by name, so every rank must use the same "
      "names.");
}

}  // namespace keras_ring
