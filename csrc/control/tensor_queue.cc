#include "csrc/control/tensor_queue.h"

#include <utility>

namespace keras_ring {

Status TensorQueue::Add(TensorEntry entry) {
  entry.submitted = std::chrono::steady_clock::now();
  Status status;
  {
    MutexLock lock(mutex_);
    status = closed_;
    if (status.ok() && parked_.count(entry.request.name) > 0) {
      status = InvalidArgumentError(
          entry.request.Label() +
          ": this name is already in flight on this rank. A name may be used "
          "again once its last use has finished; give each concurrent "
          "operation a name of its own.");
    }
    if (status.ok()) {
      requests_.push_back(entry.request);
      std::string name = entry.request.name;
      parked_.emplace(std::move(name), Parked{std::move(entry), true});
    }
  }
  if (!status.ok()) {
    entry.completion.Disarm();
    return status;
  }
  wake_();
  return OkStatus();
}

std::vector<Request> TensorQueue::PopRequests() {
  MutexLock lock(mutex_);
  for (const Request& request : requests_) {
    parked_.at(request.name).fresh = false;
  }
  return std::exchange(requests_, {});
}

TensorEntry TensorQueue::Take(const std::string& name) {
  std::vector<TensorEntry> taken = TakeIfNegotiating(name);
  KR_CHECK(taken.size() == 1);
  return std::move(taken.front());
}

std::vector<TensorEntry> TensorQueue::TakeIfNegotiating(
    const std::string& name) {
  std::vector<TensorEntry> taken;
  MutexLock lock(mutex_);
  auto it = parked_.find(name);
  if (it != parked_.end() && !it->second.fresh) {
    taken.push_back(std::move(it->second.entry));
    parked_.erase(it);
  }
  return taken;
}

std::vector<TensorEntry> TensorQueue::Close(const Status& status) {
  std::vector<TensorEntry> entries;
  MutexLock lock(mutex_);
  if (!closed_.ok()) return entries;
  closed_ = status;
  requests_.clear();
  for (auto& [name, parked] : parked_) {
    entries.push_back(std::move(parked.entry));
  }
  parked_.clear();
  return entries;
}

size_t TensorQueue::size() const {
  MutexLock lock(mutex_);
  return parked_.size();
}

}  // namespace keras_ring
