// The members of a job, and connections to them.
#ifndef KERAS_RING_COMM_RENDEZVOUS_MESH_H_
#define KERAS_RING_COMM_RENDEZVOUS_MESH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/link.h"

namespace keras_ring {

struct Member {
  std::string host_id;
  std::string host;  // name for messages
  std::string address;
  uint16_t port = 0;
  int64_t pid = 0;
};

// Enough for an address, a clock, or the identity of a device.
inline constexpr size_t kMaxExchangedBytes = 4096;

// This rank's place in a connected job: the member table and, on demand,
// authenticated connections to other members. Owns the listener (and on rank 0
// the store's server), which go on refusing peers until it dies.
class Mesh {
 public:
  virtual ~Mesh() = default;
  // This rank, an index into members().
  virtual int rank() const = 0;
  virtual const std::vector<Member>& members() const = 0;
  // Returns one link per peer. Both ends of a link must ask for it; the higher
  // rank dials, the lower accepts. `peers` must not contain this rank. The
  // error names the peers that did not connect.
  virtual Result<Links> Connect(LinkUse use, const std::vector<int>& peers,
                                Deadline deadline) = 0;
  // Returns what each member has passed, by rank: at most kMaxExchangedBytes
  // each. All members must call it the same number of times, before anything
  // runs that could carry these bytes: it opens connections of its own. The
  // error names the peer that could not be reached.
  Result<std::vector<std::string>> Exchange(const std::string& own,
                                            Deadline deadline);
  // Thread-safe: every present and later wait for a peer's link fails with
  // `cause`. The first cause is kept.
  virtual void Abort(const Status& cause) = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_RENDEZVOUS_MESH_H_
