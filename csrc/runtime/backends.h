// The backends of this build, and which one a job gets.
#ifndef KERAS_RING_RUNTIME_BACKENDS_H_
#define KERAS_RING_RUNTIME_BACKENDS_H_

#include <memory>
#include <string>

#include "csrc/base/deadline.h"
#include "csrc/base/options.h"
#include "csrc/base/status.h"
#include "csrc/collective/backend.h"
#include "csrc/collective/collective.h"

namespace keras_ring {

// "auto, shm, hierarchy, ring or mpi": what KERAS_RING_COLLECTIVE may be.
std::string CollectiveChoices();
// An error if it is none of them.
Status CheckCollectiveChoice(const std::string& collective);
// Whether a job with that choice may have a collective that reads the arenas of
// the ranks of its host.
bool MayReadArenas(const std::string& collective);

// The backend that was chosen; of "auto", the first in the list that is
// available. An error says why it cannot be.
Result<const CollectiveBackend*> ChooseBackend(const BackendDeps& deps);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_BACKENDS_H_
