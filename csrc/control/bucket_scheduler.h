// BucketScheduler: the coordinator's choice of what runs next.
#ifndef KERAS_RING_CONTROL_BUCKET_SCHEDULER_H_
#define KERAS_RING_CONTROL_BUCKET_SCHEDULER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/base/options.h"
#include "csrc/control/decision.h"
#include "csrc/control/last_ready.h"
#include "csrc/control/request.h"
#include "csrc/control/response_cache.h"
#include "csrc/control/step_meter.h"
#include "csrc/control/step_planner.h"

namespace keras_ring {

struct BucketSchedulerOptions {
  int64_t fusion_threshold = Options().fusion_threshold;  // bytes
  // The limit of a planned bucket [bytes], so that it goes on early while
  // others are still to come. Planned buckets that are complete when the next
  // one is chosen are joined, up to the threshold: each collective takes time
  // to begin and to end.
  int64_t planned_bucket = Options().planned_bucket;
  // How long a ready tensor is held back for others to join it.
  Duration linger = Duration::zero();
  // Buckets decided and not yet launched. Two keep the data thread busy while
  // the next is agreed on; more would only make the buckets smaller.
  int max_outstanding = 2;
};

class BucketScheduler {
 public:
  // `cache` and `counters` must outlive the object.
  BucketScheduler(const BucketSchedulerOptions& options,
                  const ResponseCache& cache, Counters& counters)
      : options_(options),
        cache_(cache),
        planner_(cache, PlannedBytes()),
        meter_(counters) {}

  // All ranks are ready with this response.
  void Add(std::optional<ResponseCache::Slot> slot,
           std::shared_ptr<const Response> agreed, const LastReady& last,
           TimePoint now);
  // Returns the next bucket, if it is time for one.
  std::optional<ExecuteDecision> Next(TimePoint now);
  // Returns a new plan, if there is one. Until something new is decided, all
  // its slots are live.
  std::optional<StepPlan> NewPlan() { return planner_.NewPlan(); }
  // `count` buckets were launched since the last call.
  void OnLaunched(int count);
  void Clear() { ready_.clear(); }

  // Ignores tunables of other components.
  void Tune(Tunable tunable, int64_t value);

  // Returns whether nothing is ready, or decided but not launched.
  bool idle() const { return ready_.empty() && outstanding_ == 0; }
  // Returns when Next may have something that it does not have now.
  std::optional<TimePoint> NextTimer() const;

 private:
  struct Ready {
    std::optional<ResponseCache::Slot> slot;
    std::shared_ptr<const Response> agreed;
    LastReady last;
    TimePoint since;
  };

  // The ready tensors of a planned bucket.
  struct Planned {
    int index = -1;
    size_t count = 0;
    int64_t bytes = 0;
    bool complete = false;
    // True if it is part of the next bucket; no value: not decided yet.
    std::optional<bool> joins = std::nullopt;
  };

  // Returns indices into ready_. If the bucket that is planned for the first
  // tensor is complete: that bucket and other complete ones. Else the first
  // tensor and those that fit it, among all that no complete bucket claims.
  std::vector<size_t> NextReady();
  // Returns the items of complete buckets that run together with the first.
  // `planned_of`: by item of ready_, its bucket, or null.
  std::vector<size_t> JoinComplete(const std::vector<Planned*>& planned_of);
  int64_t PlannedBytes() const {
    return std::min(options_.fusion_threshold, options_.planned_bucket);
  }

  BucketSchedulerOptions options_;
  const ResponseCache& cache_;
  StepPlanner planner_;
  StepMeter meter_;
  std::vector<Ready> ready_;
  int outstanding_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_BUCKET_SCHEDULER_H_
