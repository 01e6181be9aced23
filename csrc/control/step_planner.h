// StepPlanner: learns which tensors a program asks for together, step by step.
#ifndef KERAS_RING_CONTROL_STEP_PLANNER_H_
#define KERAS_RING_CONTROL_STEP_PLANNER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "csrc/control/response_cache.h"
#include "csrc/control/step_plan.h"

namespace keras_ring {

// The meaning of a ready slot for the step: none; or the step has ended, and
// its tensors were those of the step before or not.
enum class StepEnd { kNone, kUnequal, kEqual };

// Exists on the coordinator only: it sees in which order tensors become ready
// on all ranks. Training asks for the same tensors in every step, so the first
// slot that comes again ends a step, and a plan is made after a few steps with
// the same slots.
//
// Two neighbours in time share a bucket if the later one mostly came before the
// earlier one was executed. So a program that waits for one result before it
// asks for the next is never made to wait for a tensor that cannot come; and if
// tensors come so slowly that each is executed before the next, none is held
// back for another. A dependency that this cannot see (the third tensor of a
// burst needs the result of the first) shows when the plan is tried: see
// OnMissed.
class StepPlanner {
 public:
  using Slot = ResponseCache::Slot;

  // `cache` must outlive the planner. No bucket has more than `bucket_bytes`,
  // unless it is a single tensor.
  StepPlanner(const ResponseCache& cache, int64_t bucket_bytes)
      : cache_(cache), bucket_bytes_(bucket_bytes) {}
  // A changed limit discards the plan, which is then learned again.
  void SetBucketBytes(int64_t bytes);

  // All ranks are ready with `slot`.
  StepEnd OnReady(Slot slot);
  // OnDecided: a bucket with these slots (and perhaps others) was decided.
  // OnExecuted: the oldest such bucket was executed.
  void OnDecided(const std::vector<Slot>& slots);
  void OnExecuted();

  // Returns the plan, if it has changed since the last call.
  std::optional<StepPlan> NewPlan();

  // Returns the planned bucket of `slot`; -1 if it has none.
  int BucketOf(Slot slot) const;
  int num_buckets() const { return static_cast<int>(plan_.size()); }
  size_t BucketSize(int bucket) const { return plan_[bucket].size(); }

  // In this step a planned bucket was complete (OnComplete), or was only
  // executed in part (OnMissed). After several steps in part and none complete,
  // the plan is considered wrong: it is discarded, and learning the next one
  // takes twice as many steps.
  void OnComplete(int bucket) { missed_[bucket].steps = 0; }
  void OnMissed(int bucket);

 private:
  // The record of a slot since the steps have been equal.
  struct Seen {
    uint64_t step = 0;       // the last one it was in
    bool executed = false;   // in that step
    uint64_t positions = 0;  // in the order of readiness, summed over steps
    int joined = 0;          // steps in which no predecessor was through
  };

  StepEnd EndStep();
  void GiveUp();
  void StartOver();
  StepPlan MakePlan() const;
  void Adopt(StepPlan plan);

  const ResponseCache& cache_;
  int64_t bucket_bytes_;

  // Learning. A step is a number; `order_` is the current one.
  std::unordered_map<Slot, Seen> seen_;
  std::vector<Slot> order_;
  uint64_t step_ = 1;
  size_t last_step_size_ = 0;
  size_t unknown_ = 0;  // slots of this step that the last one did not have
  int equal_steps_ = 0;
  int needed_steps_ = 3;
  std::deque<std::vector<Slot>> outstanding_;

  // The plan in use.
  StepPlan plan_;
  std::unordered_map<Slot, int> bucket_of_;
  struct Missed {
    int steps = 0;  // since the bucket was last complete
    uint64_t last = 0;
  };
  std::vector<Missed> missed_;  // by bucket
  bool changed_ = false;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_STEP_PLANNER_H_
