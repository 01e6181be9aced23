#include "csrc/runtime/diagnostics/request_signal.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "csrc/base/logging.h"
#include "csrc/base/start_thread.h"
#include "csrc/base/status.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {
namespace {

// Used by the handler, which may access nothing else.
int bells[] = {-1, -1};
pid_t owner = 0;

int& BellOf(int signal) { return bells[signal == SIGUSR1 ? 0 : 1]; }

void Ring(int signal) {
  const int error = errno;
  const char byte = 1;
  if (getpid() == owner) (void)!write(BellOf(signal), &byte, 1);
  errno = error;
}

bool IsFree(int signal) {
  struct sigaction now;
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL;
}

void Serve(int requests, const char* name, void (*answer)()) {
  SetThreadName(name);
  char bytes[64];
  for (;;) {
    const ssize_t got = read(requests, bytes, sizeof(bytes));
    if (got > 0) answer();
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

// Starts the thread that answers; returns whether it runs.
bool StartServing(int signal, const char* name, void (*answer)()) {
  int ends[2];
  // A full pipe must not block the handler: a request is pending then anyway.
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
  BellOf(signal) = ends[1];
  owner = getpid();
  // The thread takes no signals: they are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Never joined: it lives as long as the handler.
  Result<std::thread> thread = StartThread(
      name,
      [requests = ends[0], name, answer] { Serve(requests, name, answer); });
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

void AnswerSignal(int signal, const char* thread, void (*answer)()) {
  if (!IsFree(signal)) return;
  if (!StartServing(signal, thread, answer)) {
    KR_LOG(kWarning) << (signal == SIGUSR1 ? "SIGUSR1" : "SIGUSR2")
                     << " is not answered: " << ErrnoText(errno);
    return;
  }
  struct sigaction action = {};
  action.sa_handler = Ring;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  (void)sigaction(signal, &action, nullptr);
}

}  // namespace keras_ring
