// LoopInbox: messages from other threads to the control thread.
#ifndef KERAS_RING_RUNTIME_LOOP_INBOX_H_
#define KERAS_RING_RUNTIME_LOOP_INBOX_H_

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "csrc/base/mutex.h"
#include "csrc/base/status.h"
#include "csrc/comm/transport/message_channel.h"
#include "csrc/control/controller.h"

namespace keras_ring {

// Every message wakes the control thread, which takes it out.
class LoopInbox {
 public:
  // `channel` must outlive the object.
  explicit LoopInbox(MessageChannel& channel) : channel_(channel) {}

  // --- Any thread ---

  // A bucket has been launched.
  void Launched();
  // A collective has failed; the control plane may name a cause. The last one
  // counts.
  void Suspect(const Status& status) KR_EXCLUDES(mutex_);
  // `rank` has died, or must be looked at again.
  void Died(int rank) KR_EXCLUDES(mutex_);
  void Tune(TuneDecision decision) KR_EXCLUDES(mutex_);
  // The job is broken. The first cause counts.
  void Break(const Status& cause) KR_EXCLUDES(mutex_);
  // This rank leaves the job. The first reason counts.
  void Leave(const std::string& reason) KR_EXCLUDES(mutex_);

  // --- The control thread ---

  // Returns how many buckets have been launched since the last call.
  int TakeLaunched() { return launched_.exchange(0); }
  std::vector<int> TakeDeaths() KR_EXCLUDES(mutex_);
  std::vector<TuneDecision> TakeTuned() KR_EXCLUDES(mutex_);

  // Reports that stay in force once they are made.
  struct Standing {
    Status suspicion;
    Status broken;
    std::optional<std::string> leaving;
  };
  Standing standing() const KR_EXCLUDES(mutex_);

 private:
  MessageChannel& channel_;
  std::atomic<int> launched_{0};
  mutable Mutex mutex_;
  Standing standing_ KR_GUARDED_BY(mutex_);
  std::vector<TuneDecision> tuned_ KR_GUARDED_BY(mutex_);
  std::vector<int> deaths_ KR_GUARDED_BY(mutex_);
};

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_LOOP_INBOX_H_
