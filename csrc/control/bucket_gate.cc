#include "csrc/control/bucket_gate.h"

namespace keras_ring {

void BucketGate::SetPlan(const std::vector<std::vector<std::string>>& buckets,
                         std::vector<RequestPtr>& released) {
  for (Bucket& bucket : buckets_) Release(bucket, released);
  buckets_.clear();
  members_.clear();
  for (const std::vector<std::string>& names : buckets) {
    if (names.size() < 2) continue;  // always complete
    for (const std::string& name : names) {
      members_[name].bucket = static_cast<int>(buckets_.size());
    }
    buckets_.emplace_back();
    buckets_.back().size = names.size();
    buckets_.back().held.reserve(names.size());
  }
}

void BucketGate::Add(const RequestPtr& request, TimePoint now,
                     std::vector<RequestPtr>& released) {
  auto it = members_.find(request->name);
  if (it == members_.end()) {
    released.push_back(request);
    return;
  }
  Member& member = it->second;
  Bucket& bucket = buckets_[member.bucket];
  if (member.round == bucket.round) {
    // It comes again before the others came once: they were left out.
    Release(bucket, released);
    ++bucket.round;
    bucket.came = 0;
    bucket.partial = false;
  }
  member.round = bucket.round;
  ++bucket.came;
  if (bucket.partial) {
    released.push_back(request);
  } else {
    if (bucket.held.empty()) ++holding_;
    bucket.held.push_back(request);
    bucket.last = now;
  }
  if (bucket.came == bucket.size) {
    Release(bucket, released);
    ++bucket.round;
    bucket.came = 0;
    bucket.partial = false;
  }
}

std::optional<TimePoint> BucketGate::NextRelease() const {
  std::optional<TimePoint> next;
  if (holding_ == 0) return next;
  for (const Bucket& bucket : buckets_) {
    if (bucket.held.empty()) continue;
    if (!next || bucket.last + kMaxHold < *next) next = bucket.last + kMaxHold;
  }
  return next;
}

void BucketGate::ReleaseDue(TimePoint now, std::vector<RequestPtr>& released) {
  if (holding_ == 0) return;
  for (Bucket& bucket : buckets_) {
    if (bucket.held.empty() || now < bucket.last + kMaxHold) continue;
    bucket.partial = true;
    Release(bucket, released);
  }
}

void BucketGate::Release(Bucket& bucket, std::vector<RequestPtr>& released) {
  if (bucket.held.empty()) return;
  released.insert(released.end(), bucket.held.begin(), bucket.held.end());
  bucket.held.clear();
  --holding_;
}

}  // namespace keras_ring
