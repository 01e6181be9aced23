#include "csrc/runtime/loop_inbox.h"

#include <utility>

namespace keras_ring {

void LoopInbox::Launched() {
  ++launched_;
  channel_.Wake();
}

void LoopInbox::Suspect(const Status& status) {
  {
    MutexLock lock(mutex_);
    standing_.suspicion = status;
  }
  channel_.Wake();
}

void LoopInbox::Died(int rank) {
  {
    MutexLock lock(mutex_);
    deaths_.push_back(rank);
  }
  channel_.Wake();
}

void LoopInbox::Tune(TuneDecision decision) {
  {
    MutexLock lock(mutex_);
    tuned_.push_back(std::move(decision));
  }
  channel_.Wake();
}

void LoopInbox::Break(const Status& cause) {
  {
    MutexLock lock(mutex_);
    if (standing_.broken.ok()) standing_.broken = cause;
  }
  channel_.Wake();
}

void LoopInbox::Leave(const std::string& reason) {
  {
    MutexLock lock(mutex_);
    if (!standing_.leaving) standing_.leaving = reason;
  }
  channel_.Wake();
}

std::vector<int> LoopInbox::TakeDeaths() {
  MutexLock lock(mutex_);
  return std::exchange(deaths_, {});
}

std::vector<TuneDecision> LoopInbox::TakeTuned() {
  MutexLock lock(mutex_);
  return std::exchange(tuned_, {});
}

LoopInbox::Standing LoopInbox::standing() const {
  MutexLock lock(mutex_);
  return standing_;
}

}  // namespace keras_ring
