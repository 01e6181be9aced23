#include "csrc/runtime/diagnostics/log_queue.h"

namespace keras_ring {
namespace {

// Enough for any report; a flood beyond it is counted, not kept.
constexpr size_t kMaxLines = 1000;

}  // namespace

void LogQueue::Write(LogLevel level, const std::string& line) {
  {
    MutexLock lock(mutex_);
    if (closed_) return;
    if (lines_.size() >= kMaxLines) {
      ++dropped_;
      return;
    }
    lines_.emplace_back(level, line);
  }
  changed_.NotifyOne();
}

std::vector<LogQueue::Line> LogQueue::Take() {
  MutexLock lock(mutex_);
  changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) {
    return !lines_.empty() || closed_;
  });
  std::vector<Line> taken(lines_.begin(), lines_.end());
  lines_.clear();
  if (dropped_ > 0) {
    taken.emplace_back(LogLevel::kWarning,
                       std::to_string(dropped_) + " log lines were dropped");
    dropped_ = 0;
  }
  return taken;
}

void LogQueue::Close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.NotifyAll();
}

}  // namespace keras_ring
