#include "csrc/comm/rendezvous/store_access.h"

#include <algorithm>
#include <utility>

#include "csrc/base/digest_text.h"
#include "csrc/base/sha256.h"
#include "csrc/comm/net/local_socket.h"

namespace keras_ring {
namespace {

// How long the relay of an earlier job of this key is waited for, and one that
// is there and says nothing.
constexpr Duration kLocalPatience = std::chrono::seconds(2);
constexpr Duration kLocalPause = std::chrono::milliseconds(5);
// For the relay to say whether it has reached rank 0: its deadline may be a
// little later.
constexpr Duration kRouteGrace = std::chrono::milliseconds(500);

Result<Link> OpenToRankZero(const RendezvousOptions& options,
                            Deadline deadline) {
  return OpenStoreLink(options.store_host, options.store_port, options.key,
                       options.rank, deadline, options.tls);
}

Result<StoreRoute> RouteBy(const Link& link, int through) {
  StoreRoute route;
  route.through = through;
  KR_ASSIGN_OR_RETURN(route.local, LocalAddress(link.socket()));
  KR_ASSIGN_OR_RETURN(route.peer, PeerAddress(link.socket()));
  return route;
}

Result<StoreAccess> ReachDirectly(const RendezvousOptions& options,
                                  Deadline deadline) {
  KR_ASSIGN_OR_RETURN(Link link, OpenToRankZero(options, deadline));
  StoreAccess access;
  KR_ASSIGN_OR_RETURN(access.route, RouteBy(link, /*through=*/0));
  access.store = std::make_unique<TcpStoreClient>(std::move(link));
  return access;
}

// A failure here fails all ranks of the host.
Status OpenRelay(const RendezvousOptions& options, HostRelay& relay,
                 Deadline deadline) {
  Result<Link> link = OpenToRankZero(options, deadline);
  if (!link.ok()) {
    relay.Refuse(link.status());
    return link.status();
  }
  KR_ASSIGN_OR_RETURN(const StoreRoute route, RouteBy(*link, options.rank));
  return relay.Open(std::move(link).value(), route);
}

// The relay of this host, if there is one. The link is not encrypted: it leads
// from process to process of a host.
Result<std::unique_ptr<TcpStoreClient>> ConnectToRelay(
    const RendezvousOptions& options, const std::string& name,
    Deadline deadline) {
  KR_ASSIGN_OR_RETURN(Socket socket, ConnectLocal(name, deadline));
  KR_ASSIGN_OR_RETURN(Link link, OpenLink(std::move(socket), options.key,
                                          {LinkKind::kStore, options.rank, 0},
                                          /*tls=*/nullptr, deadline));
  return std::make_unique<TcpStoreClient>(std::move(link));
}

// Returns the route that the relay reports, or the error that its silence
// means.
Result<StoreRoute> AskForRoute(TcpStoreClient& store, Deadline deadline) {
  Result<StoreRoute> route =
      HostRelay::RouteOf(store, Deadline(deadline.at() + kRouteGrace));
  if (route.status().code() != StatusCode::kDeadlineExceeded) return route;
  return DeadlineExceededError("process " + PeerProcess(store.socket()) +
                               " of this host, which asks for it, " +
                               (store.Answers()
                                    ? "still waits for it"
                                    : "says nothing; it may be stopped"));
}

}  // namespace

std::string RelayName(const RendezvousOptions& options) {
  const Sha256Digest digest =
      HmacSha256(options.key.bytes(),
                 "relay " + HostPort(options.store_host, options.store_port) +
                     " of " + options.host_id);
  return "keras_ring-relay-" + HexText(digest, 16);
}

Result<StoreAccess> ReachStore(const RendezvousOptions& options,
                               Deadline deadline, Counters& counters) {
  if (!options.by_host) return ReachDirectly(options, deadline);
  const std::string name = RelayName(options);
  StoreAccess access;
  const Deadline patience = Deadline::After(kLocalPatience);
  while (!patience.expired() && !deadline.expired()) {
    Result<Socket> listener = ListenLocal(name);
    if (listener.ok()) {
      Result<std::unique_ptr<HostRelay>> relay =
          HostRelay::Start(std::move(listener).value(), options.key, counters);
      if (!relay.ok()) break;
      KR_RETURN_IF_ERROR(OpenRelay(options, **relay, deadline));
      access.relay = std::move(relay).value();
    }
    const Deadline soon = Deadline::After(kLocalPatience);
    auto store = ConnectToRelay(options, name,
                                Deadline(std::min(deadline.at(), soon.at())));
    if (store.ok()) {
      KR_ASSIGN_OR_RETURN(access.route, AskForRoute(**store, deadline));
      access.store = std::move(store).value();
      return access;
    }
    access.relay = nullptr;
    if (store.status().code() != StatusCode::kUnavailable) break;
    Pause(kLocalPause, deadline);
  }
  return ReachDirectly(options, deadline);
}

}  // namespace keras_ring
