// Leveled log lines with the rank in front, through a replaceable sink.
//
// The Python package installs a sink that hands lines to absl.logging; tests
// install one that counts errors.
#ifndef KERAS_RING_BASE_LOGGING_H_
#define KERAS_RING_BASE_LOGGING_H_

#include <memory>
#include <sstream>
#include <string>

namespace keras_ring {

enum class LogLevel : int { kDebug = 0, kInfo, kWarning, kError, kOff };

class LogSink {
 public:
  virtual ~LogSink() = default;
  // May be called from any thread, with no lock of ours held.
  virtual void Write(LogLevel level, const std::string& line) = 0;
};

// Replaces the process's sink; null restores standard error. Lines already
// being written may still reach the old sink, which is why it is shared.
void SetLogSink(std::shared_ptr<LogSink> sink);

// Lines below `level` are dropped before they are formatted.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);

// The rank shown in front of each line; -1 shows none.
void SetLogRank(int rank);

// One line, written when the object dies at the end of the full expression.
class LogLine {
 public:
  explicit LogLine(LogLevel level) : level_(level) {}
  ~LogLine();
  template <typename T>
  LogLine& operator<<(const T& value) {
    stream_ << value;
    return *this;
  }

 private:
  const LogLevel level_;
  std::ostringstream stream_;
};

}  // namespace keras_ring

#define KR_LOG(level)                                             \
  if (!::keras_ring::LogEnabled(::keras_ring::LogLevel::level)) { \
  } else                                                          \
    ::keras_ring::LogLine(::keras_ring::LogLevel::level)

#endif  // KERAS_RING_BASE_LOGGING_H_
