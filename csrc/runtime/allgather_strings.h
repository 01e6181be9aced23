// AllgatherStrings: gathers one text from each rank on all of them.
#ifndef KERAS_RING_RUNTIME_ALLGATHER_STRINGS_H_
#define KERAS_RING_RUNTIME_ALLGATHER_STRINGS_H_

#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// Runs an allgather under `name`, which all ranks of the runtime must call.
// Blocks until the other ranks have called it, or returns the reason why
// collectives cannot run.
Result<std::vector<std::string>> AllgatherStrings(Runtime& runtime,
                                                  const std::string& name,
                                                  const std::string& text);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_ALLGATHER_STRINGS_H_
