// StoreAccess: how a rank other than 0 reaches rank 0's store.
#ifndef KERAS_RING_COMM_RENDEZVOUS_STORE_ACCESS_H_
#define KERAS_RING_COMM_RENDEZVOUS_STORE_ACCESS_H_

#include <memory>
#include <string>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/rendezvous/host_relay.h"
#include "csrc/comm/rendezvous/rendezvous.h"
#include "csrc/comm/store/tcp_store.h"

namespace keras_ring {

struct StoreAccess {
  // Set if this rank is the relay of its host.
  std::unique_ptr<HostRelay> relay;
  std::unique_ptr<TcpStoreClient> store;
  StoreRoute route;
};

// The local name of the relay, one per job and host. It cannot be guessed
// without the key, or another user could take it first.
std::string RelayName(const RendezvousOptions& options);

// Connects through the relay of this host if `options` say so, and directly if
// that does not work. kUnavailable if the relay was that of another job, or has
// just gone: worth trying again. kDeadlineExceeded if rank 0 does not come.
Result<StoreAccess> ReachStore(const RendezvousOptions& options,
                               Deadline deadline, Counters& counters);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_STORE_ACCESS_H_
