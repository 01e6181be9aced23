// StepMeter: counts the steps of a training, and what they take.
#ifndef KERAS_RING_CONTROL_STEP_METER_H_
#define KERAS_RING_CONTROL_STEP_METER_H_

#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/control/request.h"
#include "csrc/control/step_planner.h"

namespace keras_ring {

// Counts a step that had the same tensors as the one before: what is measured
// of others says nothing about the next.
class StepMeter {
 public:
  // `counters` must outlive the object.
  explicit StepMeter(Counters& counters) : counters_(counters) {}

  // All ranks are ready with `request`, which ends a step or not.
  void OnReady(StepEnd end, const Request& request, TimePoint now);

 private:
  Counters& counters_;
  // Of the current step.
  TimePoint began_{};
  int64_t bytes_ = 0;
  int64_t tensors_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_STEP_METER_H_
