#include "xla_ops/program_threads.h"

#include <pthread.h>

#include <cfenv>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace keras_ring {
namespace {

// As on all threads of XLA, or ranks would differ in the last bits: denormal
// numbers are zero, and results are rounded to the nearest.
void SetModesOfXla() {
  std::fesetround(FE_TONEAREST);
#if defined(__x86_64__)
  constexpr unsigned kDenormalsAreZero = 0x0040, kFlushToZero = 0x8000;
  _mm_setcsr(_mm_getcsr() | kDenormalsAreZero | kFlushToZero);
#elif defined(__aarch64__)
  constexpr unsigned long kFlushToZero = 1ul << 24;
  unsigned long control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | kFlushToZero));
#endif
}

}  // namespace

ProgramThreads& ProgramThreads::OfProcess() {
  // Never destroyed: its threads wait until the process ends.
  static auto* const threads = new ProgramThreads;
  return *threads;
}

void ProgramThreads::Run(std::function<void()> task) {
  std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(std::move(task));
  if (tasks_.size() > idle_) {
    ++idle_;  // which it will be, once it runs
    std::thread([this] { Work(); }).detach();
  }
  given_.notify_one();
}

void ProgramThreads::Work() {
  pthread_setname_np(pthread_self(), "kr-program");
  SetModesOfXla();
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return !tasks_.empty(); });
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    lock.unlock();
    task();
    lock.lock();
    ++idle_;
  }
}

}  // namespace keras_ring
