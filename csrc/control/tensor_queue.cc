#include "csrc/control/tensor_queue.h"

#include <utility>

namespace keras_ring {

Status TensorQueue::Add(TensorEntry entry) {
  entry.submitted = clock_.Now();
  Status status;
  bool news = false;
  {
    MutexLock lock(mutex_);
    const bool had_requests = !requests_.empty();
    const bool had_held = gate_.holds();
    status = closed_;
    if (status.ok()) status = Park(entry);
    news =
        (!had_requests && !requests_.empty()) || (!had_held && gate_.holds());
  }
  if (!status.ok()) {
    entry.completion.Disarm();
    return status;
  }
  if (news) wake_();
  return OkStatus();
}

Status TensorQueue::Park(TensorEntry& entry) {
  if (join_) {
    return FailedPreconditionError(
        entry.request->Label() +
        ": this rank has called join(), and takes part in nothing by itself "
        "until that has returned.");
  }
  if (entry.request->kind == RequestKind::kJoin) {
    join_ = std::move(entry);
    ReleaseJoin();
    return OkStatus();
  }
  const auto [it, is_new] = parked_.TryEmplace(entry.request->name);
  if (!is_new) {
    return InvalidArgumentError(
        entry.request->Label() +
        ": this name is already in flight on this rank. A name may be used "
        "again once its last use has finished; give each concurrent "
        "operation a name of its own.");
  }
  recorder_.Submitted(entry);
  gate_.Add(entry.request, entry.submitted, requests_);
  it->second.entry = std::move(entry);
  return OkStatus();
}

bool TensorQueue::ReleaseJoin() {
  if (!join_ || join_released_ || !parked_.empty()) return false;
  join_released_ = true;
  requests_.push_back(join_->request);
  return true;
}

void TensorQueue::PopRequests(std::vector<RequestPtr>& requests) {
  requests.clear();
  MutexLock lock(mutex_);
  if (gate_.holds()) {
    gate_.ReleaseDue(clock_.Now(), requests_);
  }
  for (const RequestPtr& request : requests_) {
    if (request->kind == RequestKind::kJoin) continue;
    parked_.find(request->name)->second.fresh = false;
  }
  requests.swap(requests_);
}

std::optional<TimePoint> TensorQueue::NextRelease() const {
  MutexLock lock(mutex_);
  return gate_.NextRelease();
}

void TensorQueue::SetPlan(
    const std::vector<std::vector<std::string>>& buckets) {
  bool news;
  {
    MutexLock lock(mutex_);
    gate_.SetPlan(buckets, requests_);
    news = !requests_.empty();
  }
  if (news) wake_();
}

Status TensorQueue::Take(
    const std::vector<std::shared_ptr<const Response>>& agreed, int rank,
    std::vector<TensorEntry>& entries) {
  entries.clear();
  entries.reserve(agreed.size());
  bool news;
  {
    MutexLock lock(mutex_);
    for (const auto& item : agreed) {
      auto it = parked_.find(item->request.name);
      if (it == parked_.end() || it->second.fresh) {
        return InternalError("a decision to run " + item->request.Label() +
                             ", which this rank has not asked for");
      }
      if (!item->IsOf(*it->second.entry.request, rank)) {
        return InternalError("a decision to run " + item->request.Label() +
                             " otherwise than this rank has asked for it");
      }
      entries.push_back(std::move(it->second.entry));
      parked_.Erase(it);
    }
    news = ReleaseJoin();
  }
  if (news) wake_();
  return OkStatus();
}

std::vector<TensorEntry> TensorQueue::TakeIfNegotiating(
    const std::string& name) {
  std::vector<TensorEntry> taken;
  bool news;
  {
    MutexLock lock(mutex_);
    auto it = parked_.find(name);
    if (it != parked_.end() && !it->second.fresh) {
      taken.push_back(std::move(it->second.entry));
      parked_.Erase(it);
    }
    news = ReleaseJoin();
  }
  if (news) wake_();
  return taken;
}

std::vector<TensorEntry> TensorQueue::TakeJoin() {
  std::vector<TensorEntry> taken;
  MutexLock lock(mutex_);
  if (!join_) return taken;
  taken.push_back(std::move(*join_));
  join_.reset();
  join_released_ = false;
  return taken;
}

std::vector<TensorEntry> TensorQueue::Close(const Status& status) {
  std::vector<TensorEntry> entries;
  MutexLock lock(mutex_);
  if (!closed_.ok()) return entries;
  closed_ = status;
  requests_.clear();
  gate_.Clear();
  for (auto& [name, parked] : parked_) {
    entries.push_back(std::move(parked.entry));
  }
  parked_.Clear();
  if (join_) entries.push_back(std::move(*join_));
  join_.reset();
  return entries;
}

size_t TensorQueue::size() const {
  MutexLock lock(mutex_);
  return parked_.size() + (join_ ? 1 : 0);
}

}  // namespace keras_ring
