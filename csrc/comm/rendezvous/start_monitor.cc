#include "csrc/comm/rendezvous/start_monitor.h"

#include <errno.h>
#include <poll.h>

#include <utility>

#include "csrc/base/start_thread.h"
#include "csrc/base/thread_name.h"

namespace keras_ring {

Result<std::unique_ptr<StartMonitor>> StartMonitor::Start(
    const Socket& socket, std::function<void()> news) {
  KR_ASSIGN_OR_RETURN(Socket stop, NewEventFd());
  std::unique_ptr<StartMonitor> watch(new StartMonitor(std::move(stop)));
  auto body = [socket = socket.fd(), stop = watch->stop_.fd(),
               news = std::move(news)] {
    SetThreadName("kr-start");
    pollfd entries[] = {{stop, POLLIN, 0}, {socket, POLLIN, 0}};
    while (poll(entries, 2, -1) < 0 && errno == EINTR) {
    }
    if (entries[0].revents == 0 && entries[1].revents != 0) news();
  };
  KR_ASSIGN_OR_RETURN(watch->thread_, StartThread("kr-start", body));
  return watch;
}

StartMonitor::~StartMonitor() {
  if (!thread_.joinable()) return;  // there was none to be had
  Signal(stop_);
  thread_.join();
}

}  // namespace keras_ring
