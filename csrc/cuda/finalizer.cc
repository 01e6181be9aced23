#include "csrc/cuda/finalizer.h"

#include <algorithm>
#include <utility>

#include "csrc/base/start_thread.h"

namespace keras_ring::cuda {
namespace {

// An event is looked at again and again: at first without a pause, as small
// buckets take tens of microseconds; then after an eighth of the time that it
// has taken so far, at most a millisecond.
constexpr Duration kBusy = std::chrono::microseconds(50);
constexpr Duration kLongestPause = std::chrono::milliseconds(1);

}  // namespace

Finalizer::~Finalizer() { Stop(); }

void Finalizer::Stop() {
  Abort(AbortedError("the collective was destroyed"));
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

Status Finalizer::Start() {
  KR_ASSIGN_OR_RETURN(thread_, StartThread("kr-gpu", [this] { Run(); }));
  return OkStatus();
}

void Finalizer::Add(std::shared_ptr<CudaEvent> event, Done done) {
  {
    MutexLock lock(mutex_);
    pending_.push_back({std::move(event), std::move(done)});
  }
  changed_.NotifyAll();
}

void Finalizer::Abort(const Status& cause) {
  {
    MutexLock lock(mutex_);
    if (!aborted_.ok()) return;
    aborted_ = cause;
    aborted_at_ = SystemTime().Now();
  }
  changed_.NotifyAll();
}

void Finalizer::Run() {
  for (;;) {
    Pending next;
    {
      MutexLock lock(mutex_);
      changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) {
        return !pending_.empty() || stopping_;
      });
      if (pending_.empty()) return;
      next = std::move(pending_.front());
      pending_.pop_front();
    }
    next.done(Outcome(*next.event));
  }
}

Status Finalizer::Outcome(const CudaEvent& event) {
  const TimePoint began = SystemTime().Now();
  for (;;) {
    const Result<bool> reached = event.Reached();
    const TimePoint now = SystemTime().Now();
    MutexLock lock(mutex_);
    if (!reached.ok()) return aborted_.ok() ? reached.status() : aborted_;
    if (*reached) return aborted_;
    if (!aborted_.ok() && now - aborted_at_ >= grace_) {
      gave_up_ = true;
      return aborted_;
    }
    if (now - began < kBusy) continue;
    const Duration pause = std::min((now - began) / 8, kLongestPause);
    changed_.WaitUntil(mutex_, now + pause, [] { return false; });
  }
}

}  // namespace keras_ring::cuda
