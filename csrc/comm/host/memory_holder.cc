#include "csrc/comm/host/memory_holder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/futex.h"

// Numbers that are the same on every architecture, for older headers.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

// A sanitizer would attribute what the second process does to the thread that
// started it.
#if defined(__clang__)
#define KR_UNINSTRUMENTED __attribute__((disable_sanitizer_instrumentation))
#else
#define KR_UNINSTRUMENTED
#endif

// The C library's `clone` by its other name: a sanitizer replaces `clone` by
// one that takes the second process for a fork, with memory of its own.
extern "C" int __clone(int (*run)(void*), void* stack, int flags,
                       void* argument, ...);

namespace keras_ring {
namespace {

// Between two looks whether the second process is ready, should it never be.
constexpr Duration kNap = std::chrono::milliseconds(100);
constexpr int kNaps = 50;

Status NoHolder(const char* call) {
  return ResourceExhaustedError(std::string(call) + ": " + ErrnoText(errno));
}

// A process takes over which signals are blocked. The second one is to get
// none: they are meant for the program, and would run its handlers.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

// On a stack of its own, but with the thread-local memory of the thread that
// started it, which may end first: nothing here may touch that, so there are
// system calls alone, of which none fails, and no return.
KR_UNINSTRUMENTED int MemoryHolder::Run(void* hold) {
  auto* own = static_cast<Hold*>(hold);
  const unsigned low = own->ends[0], high = own->ends[1];
  if (low > 0) syscall(SYS_close_range, 0u, low - 1, 0u);
  if (high > low + 1) syscall(SYS_close_range, low + 1, high - 1, 0u);
  syscall(SYS_close_range, high + 1, ~0u, 0u);
  syscall(SYS_prctl, PR_SET_NAME, "kr-holder", 0, 0, 0);
  auto* ready = reinterpret_cast<uint32_t*>(&own->ready);
  __atomic_store_n(ready, 1u, __ATOMIC_RELEASE);
  syscall(SYS_futex, ready, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  pollfd ends[] = {{static_cast<int>(low), POLLIN, 0},
                   {static_cast<int>(high), POLLIN, 0}};
  syscall(SYS_ppoll, ends, 2, nullptr, nullptr, 0);
  syscall(SYS_exit, 0);
  __builtin_unreachable();
}

Status MemoryHolder::Start() {
  // Checked here, as it must not fail in the second process.
  if (syscall(SYS_close_range, ~0u, ~0u, 0u) != 0) {
    return NoHolder("close_range");
  }
  const Socket process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0u)));
  if (!process.valid()) return NoHolder("pidfd_open");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NoHolder("pipe2");
  const Socket program(ends[0]);
  program_ = Socket(ends[1]);
  void* memory = mmap(nullptr, sizeof(Hold), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NoHolder("mmap");
  hold_ = new (memory) Hold;
  hold_->ends[0] = std::min(process.fd(), program.fd());
  hold_->ends[1] = std::max(process.fd(), program.fd());
  owner_ = getpid();
  {
    const AllSignalsBlocked blocked;
    // Without a signal at its end, so that code that waits for its own children
    // does not get this one.
    const int pid =
        __clone(&Run, hold_->stack + sizeof(hold_->stack), CLONE_VM, hold_);
    if (pid < 0) {
      const Status status = NoHolder("clone");
      Stop();
      return status;
    }
    pid_ = pid;
  }
  for (int i = 0; i < kNaps && hold_->ready.load() == 0; ++i) {
    FutexWait(hold_->ready, 0, kNap);
  }
  if (hold_->ready.load() == 1) return OkStatus();
  Stop();
  return ResourceExhaustedError("a process that was started does not run");
}

void MemoryHolder::Stop() {
  if (hold_ == nullptr || owner_ != getpid()) return;
  if (pid_ != 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) {
    }
    pid_ = 0;
  }
  program_.Close();
  munmap(hold_, sizeof(Hold));
  hold_ = nullptr;
}

}  // namespace keras_ring
