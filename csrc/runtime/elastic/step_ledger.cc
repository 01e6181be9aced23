#include "csrc/runtime/elastic/step_ledger.h"

namespace keras_ring {

bool StepLedger::IsDiscarded(const std::string& group) const {
  const auto found = groups_.find(group);
  return found != groups_.end() && found->second.discarded;
}

void StepLedger::Ended(const std::string& group, bool torn) {
  Group& at = groups_[group];
  at.begun = true;
  at.torn = at.torn || torn;
}

bool StepLedger::Ask(const std::string& group) {
  Group& at = groups_[group];
  if (at.discarded) {
    at.discarded = false;
    return false;
  }
  at.asked = true;
  return true;
}

void StepLedger::Committed(const std::string& group) {
  BeginStep(groups_[group]);
}

std::vector<StepReport> StepLedger::Reports() const {
  std::vector<StepReport> reports;
  for (const auto& [name, group] : groups_) {
    StepReport report;
    report.group = name;
    report.settled = group.settled;
    report.begun = group.begun;
    report.whole = group.asked && !group.torn;
    reports.push_back(std::move(report));
  }
  return reports;
}

Status StepLedger::Check(const Group& group, const StepSettlement& settlement) {
  const bool behind = group.settled + 1 == settlement.step;
  const bool whole = group.asked && !group.torn;
  if (!behind && group.settled != settlement.step) {
    return InternalError("step " + std::to_string(settlement.step) + " of " +
                         settlement.group + " was settled, and this rank is " +
                         "in step " + std::to_string(group.settled));
  }
  const bool commits = behind || settlement.outcome == StepOutcome::kCommitted;
  if (commits && !whole) {
    return InternalError("step " + std::to_string(group.settled) + " of " +
                         settlement.group +
                         " was committed, and is not complete on this rank");
  }
  if (behind && settlement.outcome == StepOutcome::kCommitted) {
    return InternalError("step " + std::to_string(settlement.step) + " of " +
                         settlement.group +
                         " was committed before this rank was in it");
  }
  return OkStatus();
}

Result<std::vector<StepLedger::Answer>> StepLedger::Settle(
    const std::vector<StepSettlement>& all) {
  for (const StepSettlement& one : all) {
    const auto found = groups_.find(one.group);
    KR_RETURN_IF_ERROR(
        Check(found == groups_.end() ? Group() : found->second, one));
  }
  std::vector<Answer> answers;
  for (const StepSettlement& one : all) {
    Group& group = groups_[one.group];
    if (group.settled < one.step) {
      BeginStep(group);
      answers.push_back({one.group, true});
    }
    if (one.outcome == StepOutcome::kOpen) continue;
    const bool asked = group.asked;
    BeginStep(group);
    if (asked) {
      answers.push_back({one.group, one.outcome == StepOutcome::kCommitted});
    } else {
      group.discarded = true;
    }
  }
  return answers;
}

void StepLedger::Adopt(const std::vector<StepSettlement>& all) {
  groups_.clear();
  for (const StepSettlement& one : all) {
    const bool is_over = one.outcome != StepOutcome::kOpen;
    groups_[one.group].settled = one.step + (is_over ? 1 : 0);
  }
}

}  // namespace keras_ring
