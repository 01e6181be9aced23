// Where a mesh becomes the parts of a runtime.
#ifndef KERAS_RING_RUNTIME_RUNTIME_PARTS_H_
#define KERAS_RING_RUNTIME_RUNTIME_PARTS_H_

#include <memory>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/host/arena.h"
#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// Connects this rank with the members of `mesh`, which all call this, and fills
// in what `deps` has of connections: host, transport, collective and channel.
// The rest of it but the mesh is there. Of a job, `arena` is where this
// process's tensors lie, or null; of a process set, `job_host` is the host of
// the job's parts, or null.
Status ConnectParts(Mesh& mesh, const std::shared_ptr<Arena>& arena,
                    const HostGroup* job_host, Deadline deadline,
                    RuntimeDeps& deps);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_RUNTIME_PARTS_H_
