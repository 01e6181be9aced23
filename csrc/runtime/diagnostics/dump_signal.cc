#include "csrc/runtime/diagnostics/dump_signal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {
namespace {

// Of the handler, which may look at nothing else.
int bell = -1;
pid_t owner = 0;

void Ring(int) {
  const int error = errno;
  const char byte = 1;
  if (getpid() == owner) (void)!write(bell, &byte, 1);
  errno = error;
}

bool IsFree() {
  struct sigaction now;
  return sigaction(SIGUSR1, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
}

void Serve(int requests, void (*dump)()) {
  SetThreadName("kr-dump");
  char bytes[64];
  for (;;) {
    const ssize_t got = read(requests, bytes, sizeof(bytes));
    if (got > 0) dump();
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

// Whether there is a thread that answers now.
bool StartServing(void (*dump)()) {
  int ends[2];
  // A full pipe must not block the handler: what is asked for is on its way.
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
  bell = ends[1];
  owner = getpid();
  // The thread takes no signals: they are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // For ever, like the handler.
  Result<std::thread> thread = StartThread(
      "kr-dump", [requests = ends[0], dump] { Serve(requests, dump); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (thread.ok()) {
    thread->detach();
    return true;
  }
  close(ends[0]);
  close(ends[1]);
  errno = EAGAIN;
  return false;
}

}  // namespace

void CallOnDumpSignal(void (*dump)()) {
  if (!IsFree()) return;
  if (!StartServing(dump)) {
    KR_LOG(kWarning) << "SIGUSR1 is not answered: " << ErrnoText(errno);
    return;
  }
  struct sigaction action = {};
  action.sa_handler = Ring;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  (void)sigaction(SIGUSR1, &action, nullptr);
}

}  // namespace keras_ring
