// RejectionLog: says that peers were refused, without filling the log.
#ifndef KERAS_RING_COMM_NET_REJECTION_LOG_H_
#define KERAS_RING_COMM_NET_REJECTION_LOG_H_

#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/logging.h"

namespace keras_ring {

class RejectionLog {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(30);

  // `counters` must outlive the log.
  explicit RejectionLog(Counters& counters) : counters_(counters) {}

  // Counts each rejection; logs the first, and then at most one per interval.
  void Add(const std::string& peer, const std::string& why, TimePoint now) {
    counters_.rejected_connections.fetch_add(1, std::memory_order_relaxed);
    if (last_ != TimePoint() && now - last_ < kInterval) {
      ++unsaid_;
      return;
    }
    last_ = now;
    std::string more =
        unsaid_ == 0 ? std::string()
                     : " (and " + std::to_string(unsaid_) + " more since)";
    unsaid_ = 0;
    KR_LOG(kWarning) << "refused a connection from " << peer << ": " << why
                     << more;
  }

 private:
  Counters& counters_;
  TimePoint last_;
  int unsaid_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_REJECTION_LOG_H_
