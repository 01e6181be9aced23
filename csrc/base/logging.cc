#include "csrc/base/logging.h"

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <utility>

#include "csrc/base/mutex.h"

namespace keras_ring {
namespace {

// A log sink serves the whole process by nature: a line may come from a thread
// that knows of no Runtime. Leaked on purpose, so that lines written while
// static objects die still have somewhere to go.
struct LogState {
  std::atomic<int> level{static_cast<int>(LogLevel::kWarning)};
  std::atomic<int> rank{-1};
  Mutex mutex;
  std::shared_ptr<LogSink> sink KR_GUARDED_BY(mutex);
  // Set in the child of a fork; see ForgetInChild.
  LogState* of_parent = nullptr;
};

// The child of a fork begins anew: a thread of the parent's may have held the
// lock, and none is left that would take lines from a queue. What was there is
// never destroyed, for threads seem to wait in it.
std::atomic<LogState*> the_state{nullptr};

void ForgetInChild() {
  LogState* of_child = new LogState;
  of_child->of_parent = the_state.load();
  of_child->level = of_child->of_parent->level.load();
  of_child->rank = of_child->of_parent->rank.load();
  the_state = of_child;
}

LogState& State() {
  static const bool made = [] {
    the_state = new LogState;
    return pthread_atfork(nullptr, nullptr, ForgetInChild) == 0;
  }();
  (void)made;
  return *the_state.load(std::memory_order_relaxed);
}

char LevelLetter(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return 'D';
    case LogLevel::kInfo:
      return 'I';
    case LogLevel::kWarning:
      return 'W';
    case LogLevel::kError:
    case LogLevel::kOff:
      return 'E';
  }
  return '?';
}

}  // namespace

void SetLogSink(std::shared_ptr<LogSink> sink) {
  MutexLock lock(State().mutex);
  // Swapped, not assigned: the old sink dies after the lock is released.
  State().sink.swap(sink);
}

void SetLogLevel(LogLevel level) { State().level = static_cast<int>(level); }

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) >= State().level.load();
}

void SetLogRank(int rank) { State().rank = rank; }

LogLine::~LogLine() {
  int rank = State().rank.load();
  std::string line =
      (rank >= 0 ? "[rank " + std::to_string(rank) + "] " : std::string()) +
      stream_.str();
  std::shared_ptr<LogSink> sink;
  {
    MutexLock lock(State().mutex);
    sink = State().sink;
  }
  if (sink) {
    sink->Write(level_, line);
  } else {
    std::fprintf(stderr, "%c keras_ring: %s\n", LevelLetter(level_),
                 line.c_str());
  }
}

}  // namespace keras_ring
