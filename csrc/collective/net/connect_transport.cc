#include "csrc/collective/net/connect_transport.h"

#include <utility>

#include "csrc/comm/rendezvous/mesh.h"
#include "csrc/comm/transport/tcp_transport.h"

namespace keras_ring {

Result<std::unique_ptr<Transport>> ConnectTransport(
    const BackendDeps& deps, Mesh& mesh, const std::vector<int>& peers,
    Deadline deadline) {
  KR_ASSIGN_OR_RETURN(auto links,
                      mesh.Connect(LinkKind::kData, peers, deadline));
  KR_ASSIGN_OR_RETURN(
      auto transport,
      TcpTransport::Create(deps.options.rank, deps.options.size,
                           std::move(links), deps.idle_limit,
                           Seconds(deps.options.heartbeat_timeout),
                           deps.counters, deps.ranks, deps.trace, deps.spin));
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace keras_ring
