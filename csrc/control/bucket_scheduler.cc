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
