// Rendezvous: a store's address -> the table of members and their connections.
#ifndef KERAS_RING_COMM_RENDEZVOUS_RENDEZVOUS_H_
#define KERAS_RING_COMM_RENDEZVOUS_RENDEZVOUS_H_

#include <memory>
#include <string>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/rendezvous/mesh.h"

namespace keras_ring {

struct RendezvousOptions {
  int rank = 0;
  int size = 1;
  // Where rank 0 serves the store. `store_host` may be several addresses of one
  // host, separated by commas.
  std::string store_host;
  uint16_t store_port = 0;
  // Rank 0 only: an inherited listening socket for the store, or -1 to bind
  // store_host:store_port. It is duplicated, so that a later init can use it
  // again.
  int store_listen_fd = -1;
  JobKey key;
  // Encrypts every link. Null: TLS is off. Must outlive the mesh.
  Tls* tls = nullptr;
  // Identity of the host: ranks with equal ids share one.
  std::string host_id;
  // If true, the ranks of each host share one connection to the store.
  bool by_host = false;
  // The address at which peers reach this rank's listener. If empty: the
  // address from which this rank reaches the store, or for rank 0, the address
  // at which the peer has reached the store. It is not a loopback address
  // unless `store_host` means loopback everywhere: then the listener uses
  // loopback, whatever is set here. Not used by a rank 0 with an inherited
  // listener.
  std::string advertise_host;
  // The ports of the listener; rank 0 uses store_port instead.
  PortRange ports;
  // "name=value" for each property that must be equal on all ranks (versions,
  // tunables).
  std::vector<std::string> fingerprint;
};

// The mesh of a job that has yet to start.
class StartingMesh : public Mesh {
 public:
  // When the start is given up at the latest: no other rank's deadline is later
  // than rank 0's.
  virtual Deadline deadline() const = 0;
  // To be called once, whether or not the start succeeded here (`own`). Waits
  // for all ranks: returns OK if all have succeeded; else an error on all
  // ranks, which names the ranks that are lost or could not start.
  virtual Status StartBarrier(const Status& own) = 0;
};

// Meets the other ranks. Fails with kDeadlineExceeded naming the ranks that
// did not come, kFailedPrecondition naming the ranks whose fingerprint differs
// and both values (the same text on all ranks), kUnauthenticated when the
// store does not know the key, kInvalidArgument for a bad rank/size.
// `counters` must outlive the mesh.
Result<std::unique_ptr<StartingMesh>> Rendezvous(
    const RendezvousOptions& options, Deadline deadline, Counters& counters);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_RENDEZVOUS_H_
