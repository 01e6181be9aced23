// Doorbell: wakes a rank's control thread, from any thread of any rank of its
// host.
#ifndef KERAS_RING_COMM_HOST_DOORBELL_H_
#define KERAS_RING_COMM_HOST_DOORBELL_H_

#include <atomic>
#include <cstdint>

#include "csrc/comm/net/socket.h"

namespace keras_ring {

// Lives in memory that the ringing processes share; zero is "awake". Costs a
// system call only when the thread may be asleep.
//
// Why no ring is lost. Whoever rings has made its work visible before; the
// thread looks for work, and then falls asleep:
//
//   Notify:       state <- notified; if it was asleep, write the eventfd.
//   FallAsleep: awake -> asleep (fails if notified: then do not sleep).
//   WakeUp:     state <- awake; and the thread looks for work again.
//
// All are atomic exchanges, so they have one order. A Notify before FallAsleep
// is seen by it; one after it finds `asleep` and writes the eventfd, which the
// wait returns for, be it before or after it began. A Notify behind WakeUp
// finds `awake` and is seen by the next FallAsleep. The eventfd may be written
// a moment after the exchange that decided to; at worst, one later wait then
// returns for nothing.
struct Doorbell {
  enum State : uint32_t { kAwake = 0, kAsleep = 1, kNotified = 2 };

  alignas(64) std::atomic<uint32_t> state{kAwake};

  void Notify(const Socket& event_fd) {
    // Not even when it is notified already may the exchange be left out: it is
    // what keeps this thread's work from becoming visible after its look.
    if (state.exchange(kNotified) == kAsleep) Signal(event_fd);
  }
  bool IsNotified() const {
    return state.load(std::memory_order_acquire) != kAwake;
  }
  bool FallAsleep() {
    uint32_t awake = kAwake;
    return state.compare_exchange_strong(awake, kAsleep);
  }
  void WakeUp() { state.exchange(kAwake); }
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_DOORBELL_H_
