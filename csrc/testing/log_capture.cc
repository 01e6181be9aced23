#include "csrc/testing/log_capture.h"

#include <utility>

#include "csrc/base/mutex.h"

namespace keras_ring {

class LogCapture::Sink final : public LogSink {
 public:
  void Write(LogLevel level, const std::string& line) override {
    MutexLock lock(mutex_);
    lines_.emplace_back(level, line);
  }

  std::vector<std::pair<LogLevel, std::string>> lines() {
    MutexLock lock(mutex_);
    return lines_;
  }

 private:
  Mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> lines_ KR_GUARDED_BY(mutex_);
};

LogCapture::LogCapture(LogLevel level) : sink_(std::make_shared<Sink>()) {
  SetLogLevel(level);
  SetLogSink(sink_);
}

LogCapture::~LogCapture() {
  SetLogSink(nullptr);
  SetLogLevel(LogLevel::kWarning);
}

int LogCapture::count(LogLevel level) const {
  int count = 0;
  for (const auto& [line_level, line] : sink_->lines()) {
    if (line_level == level) ++count;
  }
  return count;
}

std::vector<std::string> LogCapture::lines(LogLevel level) const {
  std::vector<std::string> result;
  for (auto& [line_level, line] : sink_->lines()) {
    if (line_level >= level) result.push_back(line);
  }
  return result;
}

}  // namespace keras_ring
