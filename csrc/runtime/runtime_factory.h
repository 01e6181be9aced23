// Makes a running job from options.
#ifndef KERAS_RING_RUNTIME_RUNTIME_FACTORY_H_
#define KERAS_RING_RUNTIME_RUNTIME_FACTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/options.h"
#include "csrc/base/status.h"
#include "csrc/comm/host/arena.h"
#include "csrc/runtime/process_sets.h"

namespace keras_ring {

// Meets the other ranks and starts, without process sets yet. `versions` are
// "name=value" lines that must be equal on all ranks, besides the options that
// must be. `arena`: holds this process's tensors, or null. Of an elastic job:
// `on_loss`, and `ended`, the counters of the generation before, or null. After
// an error nothing is left behind: the caller may try again.
Result<std::shared_ptr<ProcessSets>> CreateJob(
    const Options& options, const std::vector<std::string>& versions,
    const std::shared_ptr<Arena>& arena = nullptr,
    const LossHandling& on_loss = {}, const Counters* ended = nullptr);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_RUNTIME_FACTORY_H_
