// LogCapture: takes the process's log lines while it lives.
#ifndef KERAS_RING_TESTING_LOG_CAPTURE_H_
#define KERAS_RING_TESTING_LOG_CAPTURE_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/logging.h"

namespace keras_ring {

// An unexpected warning is a failure: a test that ends with lines it did not
// expect should say so. One at a time per process.
class LogCapture {
 public:
  // Lines below `level` are not written at all.
  explicit LogCapture(LogLevel level = LogLevel::kDebug);
  // Restores standard error and the default level.
  ~LogCapture();

  int count(LogLevel level) const;
  // All lines of that level and above, in the order in which they came.
  std::vector<std::string> lines(LogLevel level = LogLevel::kDebug) const;

 private:
  class Sink;
  // Shared with the logger, which may still be writing a line.
  const std::shared_ptr<Sink> sink_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_LOG_CAPTURE_H_
