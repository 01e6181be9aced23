// TimedControllers: the controllers of a job in virtual time.
//
// A message takes as long as its link; a controller is busy with it for as long
// as its code takes here, and does one thing at a time.
#ifndef KERAS_RING_TESTING_TIMED_CONTROLLERS_H_
#define KERAS_RING_TESTING_TIMED_CONTROLLERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/status.h"
#include "csrc/control/controller.h"
#include "csrc/control/request.h"

namespace keras_ring {

// Seconds.
struct ControlLinks {
  double between_hosts = 20e-6;  // from the send of a message until it is read
  double within_host = 2e-6;
  double message = 2e-6;  // that a controller is busy with each send
};

class TimedControllers {
 public:
  // hosts[rank].
  TimedControllers(const std::vector<std::string>& hosts,
                   const ControlLinks& links);

  struct Agreement {
    Status error;
    double seconds = 0;          // until the last rank knows
    double busiest_seconds = 0;  // that the busiest controller worked
    int64_t max_messages = 0;    // sent by one
    int64_t max_bytes = 0;
  };
  // All ranks submit an allreduce under each name at once, and execute what
  // they are told to.
  Agreement Agree(const std::vector<std::string>& names);

 private:
  struct Node {
    std::unique_ptr<Counters> counters;
    std::unique_ptr<Controller> controller;
    double free = 0;
    double worked = 0;
    int64_t messages = 0;
    int64_t bytes = 0;
    size_t executed = 0;
  };
  struct Message {
    double at;
    uint64_t number;  // of messages at one time, the first goes first
    int from;
    int to;
    std::string bytes;
    bool operator>(const Message& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };

  // Has a controller do something at `now`, and sends what comes of it.
  Status Do(int rank, double now, const std::function<Status(Controller&)>& f);

  const std::vector<std::string> hosts_;
  const ControlLinks links_;
  ManualClock clock_;
  std::vector<Node> nodes_;
  // By name: an operation that comes again has the request that it had.
  std::unordered_map<std::string, RequestPtr> requests_;
  std::priority_queue<Message, std::vector<Message>, std::greater<>> messages_;
  uint64_t num_messages_ = 0;
  double last_ = 0;  // when a rank was told to execute
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTING_TIMED_CONTROLLERS_H_
