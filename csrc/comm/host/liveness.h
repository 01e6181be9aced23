// LivenessFutex: the kernel reports through it that a process has died, before
// it frees the memory of that process.
#ifndef KERAS_RING_COMM_HOST_LIVENESS_H_
#define KERAS_RING_COMM_HOST_LIVENESS_H_

#include <atomic>
#include <cstdint>

#include "csrc/base/status.h"

namespace keras_ring {

// A robust futex in memory that processes share. One thread of its owner holds
// it. When that thread dies, the kernel marks it and wakes a waiter, before it
// frees the memory of the process and long before it closes the connections:
// that happens up to a third of a second later per GiB. Zero pages are a futex
// that no thread has held yet.
class LivenessFutex {
 public:
  enum class State {
    kNotYet,  // nobody has held it
    kAlive,
    kLeft,  // its end is no news; or the kernel does not watch it
    kDied,
  };

  State state() const { return StateOf(word_.load()); }
  // Makes the state `kLeft` for good, unless the owner is dead. Any thread.
  void Leave();
  // Sleeps until the state is `kLeft` or `kDied`, or `stop` is not 0, and
  // returns the state. The thread that sets `stop` must call WakeAll until the
  // waiter has returned: a single call may come just before it falls asleep.
  State AwaitEnd(const std::atomic<uint32_t>& stop);
  void WakeAll();

  // Does what the kernel does when the owner dies.
  void MarkDeadForTest();

 private:
  friend class LivenessHold;

  static State StateOf(uint32_t word);

  // In the kernel's format: the id of the holding thread, and its flags.
  std::atomic<uint32_t> word_{0};
};

// The calling thread holds a futex as long as this exists. A thread can hold
// only one, and no robust mutex of pthreads meanwhile: the kernel has one list
// of such locks per thread, and this replaces it.
class LivenessHold {
 public:
  explicit LivenessHold(LivenessFutex& futex);
  // Leaves.
  ~LivenessHold();
  LivenessHold(const LivenessHold&) = delete;
  LivenessHold& operator=(const LivenessHold&) = delete;

  // An error if the kernel does not watch the futex. Then the state is `kLeft`.
  const Status& status() const { return status_; }

 private:
  // robust_list and robust_list_head of linux/futex.h.
  struct Entry {
    Entry* next;
  };
  struct Head {
    Entry list;
    long futex_offset;  // from an entry to its futex
    Entry* pending;
  };

  LivenessFutex& futex_;
  Status status_;
  void* replaced_ = nullptr;  // the list that the thread had
  // The list is this process's own, and what is shared is the word alone: no
  // other process can lead the kernel astray.
  Head head_{};
  Entry entry_{};
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_LIVENESS_H_
