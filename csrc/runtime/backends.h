// The backends of this build, and the choice among them for a job.
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

// "auto, shm, hierarchy, ring or mpi": the values of KERAS_RING_COLLECTIVE; for
// a device those of KERAS_RING_GPU_COLLECTIVE.
std::string CollectiveChoices(DeviceKind kind = DeviceKind::kHost);
// Returns an error if one of the choices is none of them.
Status CheckCollectiveChoices(const Options& options);
// Returns whether a job with that choice may have a collective that reads the
// arenas of the ranks of its host.
bool MayReadArenas(const std::string& collective);

// Returns the chosen backend for tensors on that kind of device; for "auto",
// the first in the list that is available. The error says why the choice is not
// available.
Result<const CollectiveBackend*> ChooseBackend(
    const BackendDeps& deps, DeviceKind kind = DeviceKind::kHost);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_BACKENDS_H_
