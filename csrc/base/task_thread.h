// TaskThread: a thread that runs the tasks it is given, one after the other.
#ifndef KERAS_RING_BASE_TASK_THREAD_H_
#define KERAS_RING_BASE_TASK_THREAD_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"

namespace keras_ring {

class TaskThread {
 public:
  // `name`: at most 15 characters.
  static Result<std::unique_ptr<TaskThread>> Start(const std::string& name);
  // Runs the tasks that were pushed, then joins the thread.
  ~TaskThread();

  // May be called from any thread.
  void Push(std::function<void()> task) KR_EXCLUDES(mutex_);

 private:
  TaskThread() = default;
  void Run(const std::string& name) KR_EXCLUDES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ KR_GUARDED_BY(mutex_);
  bool ending_ KR_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_TASK_THREAD_H_
