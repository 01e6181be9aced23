// LogQueue: log lines on their way to another logging system.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_LOG_QUEUE_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_LOG_QUEUE_H_

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/logging.h"
#include "csrc/base/mutex.h"

namespace keras_ring {

// A sink that may block must not be called by kr-loop: Python's would wait for
// the interpreter lock, and a rank whose program holds that for a while would
// look dead to the others. So lines are queued, and a thread of the other
// system takes them.
class LogQueue final : public LogSink {
 public:
  using Line = std::pair<LogLevel, std::string>;

  void Write(LogLevel level, const std::string& line) override
      KR_EXCLUDES(mutex_);

  // Waits for lines and returns them; an empty list once closed and empty.
  std::vector<Line> Take() KR_EXCLUDES(mutex_);
  void Close() KR_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<Line> lines_ KR_GUARDED_BY(mutex_);
  size_t dropped_ KR_GUARDED_BY(mutex_) = 0;
  bool closed_ KR_GUARDED_BY(mutex_) = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_LOG_QUEUE_H_
