#include "csrc/comm/host/death_watch.h"

#include <utility>

#include "csrc/base/futex.h"
#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"
#include "csrc/comm/host/liveness.h"

namespace keras_ring {
namespace {

// Between two calls that wake the thread which is to end: see AwaitEnd.
constexpr Duration kWakeInterval = std::chrono::milliseconds(1);

// The sleep limit of a wait that is always woken.
constexpr Duration kLong = std::chrono::hours(1);

}  // namespace

DeathWatch::~DeathWatch() { Stop(); }

Status DeathWatch::Start(std::function<void(int rank)> died) {
  died_ = std::move(died);
  Result<std::thread> thread = StartThread("kr-watch", [this] { Run(); });
  if (!thread.ok()) {
    Leave();
    return thread.status();
  }
  thread_ = std::move(thread).value();
  return OkStatus();
}

void DeathWatch::Leave() { group_.liveness(group_.local_rank()).Leave(); }

void DeathWatch::Stop() {
  if (!thread_.joinable()) return;
  Leave();
  stop_.store(1);
  FutexWakeAll(stop_);
  while (ended_.load() == 0) {
    for (int i = 0; i < group_.size(); ++i) group_.liveness(i).WakeAll();
    FutexWait(ended_, 0, kWakeInterval);
  }
  thread_.join();
}

bool DeathWatch::HasDied(int rank) const {
  const int local_rank = group_.LocalRankOf(rank);
  return local_rank >= 0 &&
         group_.liveness(local_rank).state() == LivenessFutex::State::kDied;
}

void DeathWatch::Run() {
  SetThreadName("kr-watch");
  {
    const LivenessHold hold(group_.liveness(group_.local_rank()));
    if (!hold.status().ok()) {
      KR_LOG(kInfo) << "the other ranks of this host learn of the end of this "
                       "one by its connections, thus later: "
                    << hold.status().message();
    }
    WatchOthers();
    // The futex is held by this thread.
    while (stop_.load() == 0) FutexWait(stop_, 0, kLong);
  }
  ended_.store(1);
  FutexWakeAll(ended_);
}

void DeathWatch::WatchOthers() {
  for (int i = 1; i < group_.size() && stop_.load() == 0; ++i) {
    const int before =
        (group_.local_rank() - i + group_.size()) % group_.size();
    const LivenessFutex::State end = group_.liveness(before).AwaitEnd(stop_);
    if (end == LivenessFutex::State::kDied) died_(group_.rank(before));
  }
}

}  // namespace keras_ring
