// FlightLogWriter: runs writes that may take as long as a disk does, or longer.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_WRITER_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_WRITER_H_

#include <functional>
#include <memory>

#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"

namespace keras_ring {

// A disk that is gone (a stopped NFS server) may block a writer indefinitely.
// So the writer is a thread that nobody joins, and that owns everything it
// uses. Thread-safe.
class FlightLogWriter {
 public:
  // Calls `write` on a new thread, which may outlive this object.
  void Start(std::function<void()> write);
  // Waits until all writes are done; returns false if the deadline comes first.
  bool Wait(Deadline deadline);

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    int running KR_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_WRITER_H_
