// The streams of a SendReceivePlan on links: what is left to send to a peer
// and what is left to receive from one, each advanced as far as its link
// allows.
#ifndef KERAS_RING_COMM_TRANSPORT_PLAN_STREAMS_H_
#define KERAS_RING_COMM_TRANSPORT_PLAN_STREAMS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/transport/data_header.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// What one call came to.
struct Moved {
  size_t bytes = 0;
  bool blocked = false;  // the link takes or has nothing now
};

class SendStream {
 public:
  // All must outlive the stream. `ranks`: those that the plan names. Sends
  // `max_bytes` at a time at most.
  SendStream(uint64_t tag, Outgoing& outgoing, const Link& link,
             size_t max_bytes, const RankSet& ranks);

  // One send of what is released.
  Result<Moved> Advance();
  // Sends nothing any more: all has left.
  bool done() const { return done_; }
  // Whether a segment (or the header) may leave now.
  bool ready() const;
  // The error of a link that has failed while nothing was sent.
  Status Failure() const;
  const Link& link() const { return link_; }
  int peer() const { return outgoing_.peer; }

 private:
  size_t released() const;
  void Skip(size_t bytes);
  Status WithPeer(const Status& status) const;

  Outgoing& outgoing_;
  const Link& link_;
  const size_t max_bytes_;
  const RankSet& ranks_;
  bool done_ = false;
  uint8_t header_[kDataHeaderBytes];
  size_t header_sent_ = 0;
  size_t offset_ = 0;  // of the first segment that has not left in full
};

class ReceiveStream {
 public:
  ReceiveStream(uint64_t tag, Incoming& incoming, const Link& link,
                const RankSet& ranks);

  // One read, into the header and what is allowed.
  Result<Moved> Advance();
  bool done() const { return done_; }
  // Whether bytes may be received now.
  bool ready() const;
  const Link& link() const { return link_; }
  int peer() const { return incoming_.peer; }

 private:
  size_t allowed() const;
  Status CheckHeader() const;
  void Fill(size_t bytes);
  // "rank 3"
  std::string PeerText() const;

  const uint64_t tag_;
  Incoming& incoming_;
  const Link& link_;
  const RankSet& ranks_;
  bool done_ = false;
  uint64_t total_ = 0;
  uint8_t header_[kDataHeaderBytes];
  size_t header_got_ = 0;
  size_t offset_ = 0;  // of the first segment that has not come in full
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_PLAN_STREAMS_H_
