// SetThreadName: names a thread, for `top -H` and stack dumps.
#ifndef KERAS_RING_BASE_THREAD_NAME_H_
#define KERAS_RING_BASE_THREAD_NAME_H_

#include <pthread.h>

#include <cstdint>
#include <string>

namespace keras_ring {

// The calling thread's name; at most 15 characters.
inline void SetThreadName(const char* name) {
  pthread_setname_np(pthread_self(), name);
}
// That of a process set's thread ends in the set's number.
inline void SetThreadName(const std::string& name, uint32_t process_set) {
  SetThreadName(
      (process_set == 0 ? name : name + "/" + std::to_string(process_set))
          .substr(0, 15)
          .c_str());
}

}  // namespace keras_ring

#endif  // KERAS_RING_BASE_THREAD_NAME_H_
