#include "csrc/control/step_meter.h"

namespace keras_ring {

void StepMeter::OnReady(StepEnd end, const Request& request, TimePoint now) {
  if (end != StepEnd::kNone) {
    if (end == StepEnd::kEqual) {
      counters_.step_ns += Duration(now - began_).count();
      counters_.step_bytes += bytes_;
      counters_.step_tensors += tensors_;
      ++counters_.steps;
    }
    began_ = now;
    bytes_ = tensors_ = 0;
  }
  bytes_ += request.num_bytes();
  tensors_ += static_cast<int64_t>(request.tensors.size());
}

}  // namespace keras_ring
