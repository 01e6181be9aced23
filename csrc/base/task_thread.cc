#include "csrc/base/task_thread.h"

#include <utility>

#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {

Result<std::unique_ptr<TaskThread>> TaskThread::Start(const std::string& name) {
  std::unique_ptr<TaskThread> thread(new TaskThread);
  TaskThread* const self = thread.get();
  KR_ASSIGN_OR_RETURN(thread->thread_,
                      StartThread(name, [self, name] { self->Run(name); }));
  return thread;
}

TaskThread::~TaskThread() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void TaskThread::Push(std::function<void()> task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.NotifyAll();
}

void TaskThread::Run(const std::string& name) {
  SetThreadName(name.c_str());
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      changed_.Wait(mutex_, [this]() KR_REQUIRES(mutex_) {
        return ending_ || !tasks_.empty();
      });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace keras_ring
