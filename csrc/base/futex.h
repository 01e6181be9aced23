// Sleeping on a word of memory, which may be shared between processes.
#ifndef KERAS_RING_BASE_FUTEX_H_
#define KERAS_RING_BASE_FUTEX_H_

#include <atomic>
#include <cstdint>

#include "csrc/base/clock.h"

namespace keras_ring {

// Sleeps if `word` is `expected`, until another thread wakes it, at most for
// `limit`. May return spuriously: the caller must check again.
void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, Duration limit);
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_FUTEX_H_
