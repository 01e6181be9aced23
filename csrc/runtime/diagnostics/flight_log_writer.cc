#include "csrc/runtime/diagnostics/flight_log_writer.h"

#include <utility>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {

void FlightLogWriter::Start(std::function<void()> write) {
  {
    MutexLock lock(state_->mutex);
    ++state_->running;
  }
  auto done = [state = state_] {
    {
      MutexLock lock(state->mutex);
      --state->running;
    }
    state->changed.NotifyAll();
  };
  Result<std::thread> thread =
      StartThread("kr-flight", [write = std::move(write), done] {
        SetThreadName("kr-flight");
        write();
        done();
      });
  if (thread.ok()) return thread->detach();
  KR_LOG(kWarning) << "no flight record is written: "
                   << thread.status().message();
  done();
}

bool FlightLogWriter::Wait(Deadline deadline) {
  State& state = *state_;
  MutexLock lock(state.mutex);
  return state.changed.WaitUntil(
      state.mutex, deadline.at(),
      [&state]() KR_REQUIRES(state.mutex) { return state.running == 0; });
}

}  // namespace keras_ring
