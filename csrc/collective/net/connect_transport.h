// ConnectTransport: the transport of a backend's collective.
#ifndef KERAS_RING_COLLECTIVE_NET_CONNECT_TRANSPORT_H_
#define KERAS_RING_COLLECTIVE_NET_CONNECT_TRANSPORT_H_

#include <memory>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/collective/backend.h"
#include "csrc/comm/transport/breakable_transport.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// Makes a transport for a backend, with links to `peers`; they must call it,
// too.
using TransportMaker = Result<std::unique_ptr<Transport>> (*)(
    const BackendDeps& deps, Mesh& mesh, const std::vector<int>& peers,
    Deadline deadline);

// What each transport of a backend is made from.
TransportDeps TransportDepsOf(const BackendDeps& deps);

// A TransportMaker that uses TCP.
Result<std::unique_ptr<Transport>> ConnectTransport(
    const BackendDeps& deps, Mesh& mesh, const std::vector<int>& peers,
    Deadline deadline);

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_CONNECT_TRANSPORT_H_
