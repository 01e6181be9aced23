// FlightLogWriter: writes what may take as long as a disk does, and longer.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_WRITER_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_FLIGHT_LOG_WRITER_H_

#include <functional>
#include <memory>

#include "csrc/base/deadline.h"
#include "csrc/base/mutex.h"

namespace keras_ring {

// A disk that is gone (a stopped NFS server) holds whoever writes to it for as
// long as it likes. So that is a thread that nobody joins, and that owns all it
// uses. Thread-safe.
class FlightLogWriter {
 public:
  // Calls `write` on a thread of its own. It may outlive the writer.
  void Start(std::function<void()> write);
  // Waits until all that was started is done; false if the deadline comes
  // first.
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
