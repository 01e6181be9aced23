#include "csrc/control/step_planner.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/control/fusion_plan.h"

namespace keras_ring {
namespace {

// A tensor that is late once, by a pause of its rank, says nothing.
constexpr int kMaxMissed = 3;
constexpr int kMaxNeededSteps = 1 << 12;
// A longer sequence is not a step: its names never come again.
constexpr size_t kMaxStepSize = 1 << 16;

}  // namespace

StepEnd StepPlanner::OnReady(Slot slot) {
  StepEnd end = StepEnd::kNone;
  auto it = seen_.find(slot);
  if (it != seen_.end() && it->second.step == step_) {
    end = EndStep();
    it = seen_.find(slot);
  }
  if (it == seen_.end()) it = seen_.try_emplace(slot).first;
  Seen& seen = it->second;
  if (seen.step + 1 != step_) ++unknown_;
  seen.step = step_;
  seen.executed = false;
  seen.positions += order_.size();
  if (order_.empty() || !seen_.at(order_.back()).executed) ++seen.joined;
  order_.push_back(slot);
  if (order_.size() > kMaxStepSize) StartOver();
  return end;
}

StepEnd StepPlanner::EndStep() {
  const bool equal = unknown_ == 0 && order_.size() == last_step_size_;
  if (equal) {
    ++equal_steps_;
    if (equal_steps_ == needed_steps_) Adopt(MakePlan());
  } else {
    // Learning starts again; the slots of this step are the first of the next.
    equal_steps_ = 0;
    seen_.clear();
    for (Slot slot : order_) {
      seen_[slot].step = step_;
      seen_[slot].executed = true;
    }
  }
  last_step_size_ = order_.size();
  unknown_ = 0;
  order_.clear();
  ++step_;
  return equal ? StepEnd::kEqual : StepEnd::kUnequal;
}

void StepPlanner::OnDecided(const std::vector<Slot>& slots) {
  outstanding_.push_back(slots);
}

void StepPlanner::OnExecuted() {
  for (Slot slot : outstanding_.front()) {
    auto it = seen_.find(slot);
    if (it != seen_.end()) it->second.executed = true;
  }
  outstanding_.pop_front();
}

StepPlan StepPlanner::MakePlan() const {
  struct Member {
    Slot slot;
    const Seen* seen;
    const Request* request;
  };
  std::vector<Member> members;
  for (Slot slot : order_) {
    if (!cache_.IsLive(slot)) return {};
    members.push_back(Member{slot, &seen_.at(slot), &cache_.At(slot)->request});
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) {
                     return a.seen->positions < b.seen->positions;
                   });
  // Buckets that may still grow: of each kind of request at most one.
  struct Open {
    const Request* first;
    int64_t bytes;
    std::vector<Slot> slots;
  };
  std::vector<Open> open;
  StepPlan plan;
  auto close = [&plan](Open& bucket) {
    std::sort(bucket.slots.begin(), bucket.slots.end());
    plan.push_back(std::move(bucket.slots));
  };
  for (const Member& member : members) {
    const int64_t bytes = member.request->num_bytes();
    if (2 * member.seen->joined < equal_steps_) {
      for (Open& bucket : open) close(bucket);
      open.clear();
    }
    auto mine = std::find_if(open.begin(), open.end(), [&](const Open& bucket) {
      return MayShare(*bucket.first, *member.request);
    });
    if (mine != open.end() && mine->bytes + bytes > bucket_bytes_) {
      close(*mine);
      open.erase(mine);
      mine = open.end();
    }
    if (mine == open.end()) {
      open.push_back(Open{member.request, 0, {}});
      mine = std::prev(open.end());
    }
    mine->bytes += bytes;
    mine->slots.push_back(member.slot);
  }
  for (Open& bucket : open) close(bucket);
  return plan;
}

void StepPlanner::Adopt(StepPlan plan) {
  // The same slots as before: a plan that works is not changed.
  const bool same_slots =
      order_.size() == bucket_of_.size() &&
      std::all_of(order_.begin(), order_.end(),
                  [this](Slot slot) { return bucket_of_.count(slot) > 0; });
  if (same_slots) return;
  plan_ = std::move(plan);
  missed_.assign(plan_.size(), Missed());
  bucket_of_.clear();
  for (size_t i = 0; i < plan_.size(); ++i) {
    for (Slot slot : plan_[i]) bucket_of_[slot] = static_cast<int>(i);
  }
  changed_ = true;
}

std::optional<StepPlan> StepPlanner::NewPlan() {
  if (!std::exchange(changed_, false)) return std::nullopt;
  return plan_;
}

int StepPlanner::BucketOf(Slot slot) const {
  auto it = bucket_of_.find(slot);
  return it == bucket_of_.end() ? -1 : it->second;
}

void StepPlanner::OnMissed(int bucket) {
  Missed& missed = missed_[bucket];
  if (missed.last == step_) return;
  missed.last = step_;
  if (++missed.steps < kMaxMissed) return;
  needed_steps_ = std::min(2 * needed_steps_, kMaxNeededSteps);
  GiveUp();
}

void StepPlanner::SetBucketBytes(int64_t bytes) {
  if (bytes == bucket_bytes_) return;
  bucket_bytes_ = bytes;
  GiveUp();
}

void StepPlanner::GiveUp() {
  // If two plans follow each other, only the last counts, as no rank has
  // received the first.
  changed_ = changed_ || !plan_.empty();
  plan_.clear();
  bucket_of_.clear();
  missed_.clear();
  StartOver();
}

void StepPlanner::StartOver() {
  equal_steps_ = 0;
  seen_.clear();
  order_.clear();
  unknown_ = 0;
  last_step_size_ = 0;
}

}  // namespace keras_ring
