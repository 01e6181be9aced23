// StartThread: a thread, or why there is none.
#ifndef KERAS_RING_BASE_START_THREAD_H_
#define KERAS_RING_BASE_START_THREAD_H_

#include <functional>
#include <string>
#include <thread>

#include "csrc/base/status.h"

namespace keras_ring {

// Runs `body` on a new thread. kResourceExhausted where the system has none
// left, which std::thread would throw. `name`: for the error; the thread sets
// its own.
Result<std::thread> StartThread(const std::string& name,
                                std::function<void()> body);

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_START_THREAD_H_
