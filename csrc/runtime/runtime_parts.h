// Makes the parts of a runtime from a mesh.
#ifndef KERAS_RING_RUNTIME_RUNTIME_PARTS_H_
#define KERAS_RING_RUNTIME_RUNTIME_PARTS_H_

#include <memory>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/host/arena.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// Connects this rank with the members of `mesh`, which all call this, and sets
// the members of `deps` that need connections: host, transport, collective and
// channel. The others, except the mesh, must be set. For a job, `arena` holds
// this process's tensors, or is null; for a process set, `job_host` is the host
// of the job's parts, or null.
Status ConnectParts(Mesh& mesh, const std::shared_ptr<Arena>& arena,
                    const HostGroup* job_host, Deadline deadline,
                    RuntimeDeps& deps);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_RUNTIME_PARTS_H_
