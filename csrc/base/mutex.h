// Mutex, MutexLock and CondVar: the std types with thread-safety annotations.
//
// clang checks them with -Wthread-safety; for g++ they are documentation.
#ifndef KERAS_RING_BASE_MUTEX_H_
#define KERAS_RING_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define KR_ATTRIBUTE(x) __attribute__((x))
#else
#define KR_ATTRIBUTE(x)
#endif
#define KR_CAPABILITY(x) KR_ATTRIBUTE(capability(x))
#define KR_SCOPED_CAPABILITY KR_ATTRIBUTE(scoped_lockable)
#define KR_GUARDED_BY(x) KR_ATTRIBUTE(guarded_by(x))
#define KR_REQUIRES(x) KR_ATTRIBUTE(requires_capability(x))
#define KR_EXCLUDES(x) KR_ATTRIBUTE(locks_excluded(x))
#define KR_ACQUIRE(...) KR_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define KR_RELEASE(...) KR_ATTRIBUTE(release_capability(__VA_ARGS__))
#define KR_NO_THREAD_SAFETY_ANALYSIS KR_ATTRIBUTE(no_thread_safety_analysis)

namespace keras_ring {

class KR_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() KR_ACQUIRE() { mutex_.lock(); }
  void Unlock() KR_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class KR_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KR_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() KR_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  // Waits until predicate() holds. The caller holds `mutex`.
  template <typename Predicate>
  void Wait(Mutex& mutex, Predicate predicate)
      KR_REQUIRES(mutex) KR_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock, predicate);
    lock.release();
  }

  // As Wait, at most until `until`; returns predicate().
  template <typename Predicate>
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point until,
                 Predicate predicate)
      KR_REQUIRES(mutex) KR_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    bool satisfied = condition_.wait_until(lock, until, predicate);
    lock.release();
    return satisfied;
  }

 private:
  std::condition_variable condition_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_MUTEX_H_
