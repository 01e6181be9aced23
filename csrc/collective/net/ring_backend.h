// The backend whose ranks exchange with each other, whatever their hosts.
#ifndef KERAS_RING_COLLECTIVE_NET_RING_BACKEND_H_
#define KERAS_RING_COLLECTIVE_NET_RING_BACKEND_H_

#include "csrc/collective/backend.h"
#include "csrc/collective/net/connect_transport.h"

namespace keras_ring {

// Its collective over another transport.
Result<std::unique_ptr<Collective>> MakeFlat(const BackendDeps& deps,
                                             Mesh& mesh, TransportMaker connect,
                                             Deadline deadline);

// Uses TCP.
extern const CollectiveBackend kRingBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_RING_BACKEND_H_
