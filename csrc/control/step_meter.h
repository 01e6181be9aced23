// StepMeter: counts the steps of a training, with their time and size.
#ifndef KERAS_RING_CONTROL_STEP_METER_H_
#define KERAS_RING_CONTROL_STEP_METER_H_

#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/base/counters.h"
#include "csrc/control/request.h"
#include "csrc/control/step_planner.h"

namespace keras_ring {

// Counts only steps that had the same tensors as the one before: measurements
// of other steps say nothing about the next.
class StepMeter {
 public:
  // `counters` must outlive the object.
  explicit StepMeter(Counters& counters) : counters_(counters) {}

  // All ranks are ready with `request`. `end`: whether it ends a step.
  void OnReady(StepEnd end, const Request& request, TimePoint now);

 private:
  Counters& counters_;
  // The current step.
  TimePoint began_{};
  int64_t bytes_ = 0;
  int64_t tensors_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_CONTROL_STEP_METER_H_
