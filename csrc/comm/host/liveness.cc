#include "csrc/comm/host/liveness.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

#include "csrc/base/futex.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {
namespace {

// No thread has this id: a system has four million at most.
constexpr uint32_t kLeftWord = FUTEX_TID_MASK;

// The kernel wakes one waiter, which wakes the others. If that waiter dies
// before it does, they check again after this time.
constexpr Duration kNap = std::chrono::seconds(1);

}  // namespace

LivenessFutex::State LivenessFutex::StateOf(uint32_t word) {
  if ((word & FUTEX_OWNER_DIED) != 0) return State::kDied;
  switch (word & FUTEX_TID_MASK) {
    case 0:
      return State::kNotYet;
    case kLeftWord:
      return State::kLeft;
    default:
      return State::kAlive;
  }
}

void LivenessFutex::WakeAll() { FutexWakeAll(word_); }

void LivenessFutex::Leave() {
  uint32_t word = word_.load();
  while (StateOf(word) == State::kNotYet || StateOf(word) == State::kAlive) {
    if (word_.compare_exchange_weak(word, kLeftWord)) return WakeAll();
  }
}

LivenessFutex::State LivenessFutex::AwaitEnd(
    const std::atomic<uint32_t>& stop) {
  uint32_t word = word_.load();
  while (true) {
    const State state = StateOf(word);
    if (state == State::kDied) WakeAll();
    if (state == State::kDied || state == State::kLeft) return state;
    if (stop.load() != 0) return state;
    // Without this bit the kernel wakes no waiter.
    const uint32_t waited = word | FUTEX_WAITERS;
    if (word != waited && !word_.compare_exchange_weak(word, waited)) continue;
    FutexWait(word_, waited, kNap);
    word = word_.load();
  }
}

void LivenessFutex::MarkDeadForTest() {
  word_.store(FUTEX_OWNER_DIED);
  WakeAll();
}

LivenessHold::LivenessHold(LivenessFutex& futex) : futex_(futex) {
  static_assert(sizeof(Entry) == sizeof(robust_list));
  static_assert(sizeof(Head) == sizeof(robust_list_head));
  static_assert(offsetof(Head, futex_offset) ==
                offsetof(robust_list_head, futex_offset));
  entry_.next = &head_.list;
  head_.list.next = &entry_;
  head_.futex_offset =
      reinterpret_cast<char*>(&futex.word_) - reinterpret_cast<char*>(&entry_);
  size_t bytes = 0;
  if (syscall(SYS_get_robust_list, 0, &replaced_, &bytes) != 0) {
    replaced_ = nullptr;
  }
  if (syscall(SYS_set_robust_list, &head_, sizeof(head_)) != 0) {
    status_ = ResourceExhaustedError("set_robust_list: " + ErrnoText(errno));
    futex.Leave();
    return;
  }
  const auto id = static_cast<uint32_t>(syscall(SYS_gettid));
  uint32_t word = futex.word_.load();
  while (LivenessFutex::StateOf(word) == LivenessFutex::State::kNotYet) {
    if (futex.word_.compare_exchange_weak(word, id)) break;
  }
  // Wakes those that wait already, so that they mark themselves again.
  futex.WakeAll();
}

LivenessHold::~LivenessHold() {
  futex_.Leave();
  (void)syscall(SYS_set_robust_list, replaced_, sizeof(head_));
}

}  // namespace keras_ring
