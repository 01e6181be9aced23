// ProgramThreads: the threads on which compiled programs go on.
#ifndef KERAS_RING_XLA_OPS_PROGRAM_THREADS_H_
#define KERAS_RING_XLA_OPS_PROGRAM_THREADS_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace keras_ring {

// What tells XLA that a collective has ended goes on with the program: a thread
// of the runtime has other things to do. There is always an idle thread for a
// task, because a program may block its thread.
class ProgramThreads {
 public:
  static ProgramThreads& OfProcess();

  void Run(std::function<void()> task);

 private:
  void Work();

  std::mutex mutex_;  // of the following
  std::condition_variable given_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_XLA_OPS_PROGRAM_THREADS_H_
