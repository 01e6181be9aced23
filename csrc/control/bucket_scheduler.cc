#include "csrc/control/bucket_scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "csrc/control/fusion_plan.h"

namespace keras_ring {

void BucketScheduler::Add(std::optional<ResponseCache::Slot> slot,
                          std::shared_ptr<const Response> agreed,
                          const LastReady& last, TimePoint now) {
  if (slot) meter_.OnReady(planner_.OnReady(*slot), agreed->request, now);
  ready_.push_back(Ready{slot, std::move(agreed), last, now});
}

std::optional<ExecuteDecision> BucketScheduler::Next(TimePoint now) {
  if (ready_.empty() || outstanding_ >= options_.max_outstanding ||
      now < ready_.front().since + options_.linger) {
    return std::nullopt;
  }
  ExecuteDecision decision;
  for (size_t index : NextReady()) {
    Ready& item = ready_[index];
    decision.last.Merge(item.last);
    // The slot may have been evicted since its ranks became ready.
    if (item.slot && cache_.IsLive(*item.slot)) {
      decision.slots.push_back(*item.slot);
    } else {
      decision.uncached.push_back(item.agreed);
    }
    item.agreed.reset();
  }
  std::sort(decision.slots.begin(), decision.slots.end());
  ready_.erase(std::remove_if(ready_.begin(), ready_.end(),
                              [](const Ready& item) { return !item.agreed; }),
               ready_.end());
  ++outstanding_;
  planner_.OnDecided(decision.slots);
  return decision;
}

std::vector<size_t> BucketScheduler::NextReady() {
  std::vector<Planned> planned(planner_.num_buckets());
  std::vector<Planned*> planned_of(ready_.size(), nullptr);
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (!ready_[i].slot) continue;
    const int index = planner_.BucketOf(*ready_[i].slot);
    if (index < 0) continue;
    Planned& bucket = planned[index];
    bucket.index = index;
    bucket.bytes += ready_[i].agreed->request.num_bytes();
    bucket.complete = ++bucket.count == planner_.BucketSize(index);
    planned_of[i] = &bucket;
  }
  if (planned_of[0] != nullptr && planned_of[0]->complete) {
    return JoinComplete(planned_of);
  }
  std::vector<const Request*> requests;
  std::vector<size_t> indices;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (planned_of[i] != nullptr && planned_of[i]->complete) continue;
    requests.push_back(&ready_[i].agreed->request);
    indices.push_back(i);
  }
  std::vector<size_t> bucket;
  for (size_t index : NextBucket(requests, options_.fusion_threshold)) {
    bucket.push_back(indices[index]);
  }
  if (planned_of[0] != nullptr) planner_.OnMissed(planned_of[0]->index);
  return bucket;
}

std::vector<size_t> BucketScheduler::JoinComplete(
    const std::vector<Planned*>& planned_of) {
  const Request& first = ready_.front().agreed->request;
  std::vector<size_t> joined;
  int64_t bytes = 0;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (planned_of[i] == nullptr || !planned_of[i]->complete) continue;
    Planned& bucket = *planned_of[i];
    if (!bucket.joins) {
      bucket.joins =
          i == 0 || (bucket.bytes <= options_.fusion_threshold - bytes &&
                     MayShare(first, ready_[i].agreed->request));
      if (*bucket.joins) {
        bytes += bucket.bytes;
        planner_.OnComplete(bucket.index);
      }
    }
    if (*bucket.joins) joined.push_back(i);
  }
  return joined;
}

void BucketScheduler::OnLaunched(int count) {
  outstanding_ -= count;
  for (int i = 0; i < count; ++i) planner_.OnExecuted();
}

void BucketScheduler::Tune(Tunable tunable, int64_t value) {
  switch (tunable) {
    case Tunable::kFusionThreshold:
      options_.fusion_threshold = value;
      return planner_.SetBucketBytes(PlannedBytes());
    case Tunable::kPlannedBucket:
      options_.planned_bucket = value;
      return planner_.SetBucketBytes(PlannedBytes());
    case Tunable::kLinger:
      options_.linger = std::chrono::microseconds(value);
      return;
    case Tunable::kAllreducePreference:
    case Tunable::kExchangeBytes:
    case Tunable::kOneLaneBytes:
    case Tunable::kPartBytes:
    case Tunable::kOneShotBytes:
    case Tunable::kDirectPartBytes:
      return;
  }
}

std::optional<TimePoint> BucketScheduler::NextTimer() const {
  if (ready_.empty() || outstanding_ >= options_.max_outstanding) {
    return std::nullopt;
  }
  return ready_.front().since + options_.linger;
}

}  // namespace keras_ring
