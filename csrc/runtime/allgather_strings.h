// AllgatherStrings: what each rank has to say, told to all of them.
#ifndef KERAS_RING_RUNTIME_ALLGATHER_STRINGS_H_
#define KERAS_RING_RUNTIME_ALLGATHER_STRINGS_H_

#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// An allgather under `name`, which all ranks of the runtime call. Waits; ends
// when the others have come, or with the reason why collectives cannot run.
Result<std::vector<std::string>> AllgatherStrings(Runtime& runtime,
                                                  const std::string& name,
                                                  const std::string& text);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_ALLGATHER_STRINGS_H_
