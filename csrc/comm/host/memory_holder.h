// MemoryHolder: lets the connections of a process that dies close before its
// memory is freed.
#ifndef KERAS_RING_COMM_HOST_MEMORY_HOLDER_H_
#define KERAS_RING_COMM_HOST_MEMORY_HOLDER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

// The kernel ends a process by first giving up its memory, then closing its
// files. The last process to give up memory frees it, which takes up to a third
// of a second per GiB. So there is a second process, `kr-holder`, which shares
// this one's memory but none of its files, runs nothing, and ends as soon as
// this one has ended. It serves a rank whose death no other rank of its host
// can report: see DeathWatch.
class MemoryHolder {
 public:
  MemoryHolder() = default;
  ~MemoryHolder() { Stop(); }
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;

  // To be called once. An error if the system allows no such process.
  Status Start();
  // Ends the second process, unless this one is a fork of that which started
  // it. Idempotent.
  void Stop();
  // The id of the second process; 0: there is none.
  pid_t pid() const { return pid_; }

 private:
  // The second process's own state.
  struct Hold {
    // Descriptors that it waits for, the lower one first: of the end of this
    // process, and of a pipe that closes when this process runs another
    // program.
    unsigned ends[2];
    std::atomic<uint32_t> ready{0};  // a futex: 1 when it has no other files
    alignas(16) char stack[16 << 10];
  };
  static int Run(void* hold);

  pid_t owner_ = 0;
  pid_t pid_ = 0;
  Hold* hold_ = nullptr;  // of a mapping
  Socket program_;        // the other end of the pipe
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_MEMORY_HOLDER_H_
