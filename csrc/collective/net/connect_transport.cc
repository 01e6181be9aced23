#include "csrc/collective/net/connect_transport.h"

#include <utility>

#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/transport/tcp_transport.h"

namespace keras_ring {

TransportDeps TransportDepsOf(const BackendDeps& deps) {
  return {deps.options.rank, deps.options.size,
          deps.idle_limit,   Seconds(deps.options.heartbeat_timeout),
          deps.counters,     deps.ranks,
          deps.trace,        deps.spin};
}

Result<std::unique_ptr<Transport>> ConnectTransport(
    const BackendDeps& deps, Mesh& mesh, const std::vector<int>& peers,
    Deadline deadline) {
  KR_ASSIGN_OR_RETURN(auto links,
                      mesh.Connect(LinkKind::kData, peers, deadline));
  KR_ASSIGN_OR_RETURN(
      auto transport,
      TcpTransport::Create(TransportDepsOf(deps), std::move(links)));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace keras_ring
