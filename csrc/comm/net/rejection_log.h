// RejectionLog: says that peers were refused, without filling the log.
#ifndef KERAS_RING_COMM_NET_REJECTION_LOG_H_
#define KERAS_RING_COMM_NET_REJECTION_LOG_H_

#include <cstdint>
#include <string>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/logging.h"
#include "csrc/base/mutex.h"

namespace keras_ring {

class RejectionLog {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(30);

  // `counters` must outlive the log.
  explicit RejectionLog(Counters& counters) : counters_(counters) {}

  // Counts each rejection; logs the first, and then at most one per interval.
  void Add(const std::string& peer, const std::string& why, TimePoint now)
      KR_EXCLUDES(mutex_) {
    counters_.rejected_connections.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    ++total_;
    latest_ = peer + ": " + why;
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

  // Summarizes all rejections; "" if there are none. Any thread.
  std::string Summary() const KR_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (total_ == 0) return "";
    return std::to_string(total_) +
           (total_ == 1 ? " connection was" : " connections were") +
           " refused, the last from " + latest_;
  }

 private:
  Counters& counters_;
  mutable Mutex mutex_;
  TimePoint last_ KR_GUARDED_BY(mutex_);
  int unsaid_ KR_GUARDED_BY(mutex_) = 0;
  int64_t total_ KR_GUARDED_BY(mutex_) = 0;
  std::string latest_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_REJECTION_LOG_H_
