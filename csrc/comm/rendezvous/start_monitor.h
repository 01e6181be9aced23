// StartMonitor: tells a rank that waits for links when the job's start fails
// elsewhere.
#ifndef KERAS_RING_COMM_RENDEZVOUS_START_MONITOR_H_
#define KERAS_RING_COMM_RENDEZVOUS_START_MONITOR_H_

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

class StartMonitor {
 public:
  // Calls `news` once, on a thread of its own, when `socket` becomes readable
  // or its peer has gone. Reads nothing. `socket` must outlive the monitor.
  static Result<std::unique_ptr<StartMonitor>> Start(
      const Socket& socket, std::function<void()> news);
  // After it returns, `news` is not called.
  ~StartMonitor();

 private:
  explicit StartMonitor(Socket stop) : stop_(std::move(stop)) {}

  const Socket stop_;
  std::thread thread_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_START_MONITOR_H_
