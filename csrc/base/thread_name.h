// SetThreadName: so that `top -H` and stack dumps say who is who.
#ifndef KERAS_RING_BASE_THREAD_NAME_H_
#define KERAS_RING_BASE_THREAD_NAME_H_

#include <pthread.h>

namespace keras_ring {

// The calling thread's name; at most 15 characters.
inline void SetThreadName(const char* name) {
  pthread_setname_np(pthread_self(), name);
}

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_THREAD_NAME_H_
