// The process's runtime: the one mutable global, because TensorFlow makes
// kernels itself and gives them nothing of ours.
#ifndef KERAS_RING_RUNTIME_PROCESS_RUNTIME_H_
#define KERAS_RING_RUNTIME_PROCESS_RUNTIME_H_

#include <memory>
#include <string>

#include "csrc/base/status.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// Puts `runtime` in the slot. kFailedPrecondition if there is one.
Status InstallProcessRuntime(std::shared_ptr<Runtime> runtime);

// The runtime, or null before init and after shutdown. A kernel keeps the
// pointer for as long as it needs the runtime.
std::shared_ptr<Runtime> ProcessRuntime();

// The same for a collective of this name; kFailedPrecondition without one.
Result<std::shared_ptr<Runtime>> ProcessRuntimeFor(const std::string& name);

// Empties the slot and returns what was in it.
std::shared_ptr<Runtime> TakeProcessRuntime();

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_PROCESS_RUNTIME_H_
