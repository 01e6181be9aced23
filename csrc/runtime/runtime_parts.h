// Where a mesh becomes the parts of a runtime.
#ifndef KERAS_RING_RUNTIME_RUNTIME_PARTS_H_
#define KERAS_RING_RUNTIME_RUNTIME_PARTS_H_

#include <memory>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/arena.h"
#include "csrc/comm/rendezvous.h"
#include "csrc/runtime/runtime.h"

namespace keras_ring {

// Connects this rank with the members of `mesh`, which all call this, and fills
// in what `deps` has of connections: host, transport, collective and channel.
// The rest of it but the mesh is there. `arena`: where this process's tensors
// lie, or null.
Status ConnectParts(Mesh& mesh, const std::shared_ptr<Arena>& arena,
                    Deadline deadline, RuntimeDeps& deps);

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_RUNTIME_PARTS_H_
