// The streams of a SendReceivePlan on links, each advanced as far as its link
// allows.
#ifndef KERAS_RING_COMM_TRANSPORT_PLAN_STREAMS_H_
#define KERAS_RING_COMM_TRANSPORT_PLAN_STREAMS_H_

#include <cstddef>
#include <cstdint>

#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/transport/stream_cursors.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

class SendStream {
 public:
  // All references must outlive the stream. `ranks`: the set that the plan's
  // ranks are counted in. Sends at most `max_bytes` at a time.
  SendStream(uint64_t tag, Outgoing& outgoing, const Link& link,
             size_t max_bytes, const RankSet& ranks);

  // Sends once from what is released.
  Result<Moved> Advance();
  // Returns whether all has been sent.
  bool done() const { return cursor_.done(); }
  // Returns whether a segment (or the header) may leave now.
  bool ready() const { return cursor_.ready(); }
  // The error of a link that has failed while nothing was being sent.
  Status Failure() const;
  const Link& link() const { return link_; }
  int peer() const { return cursor_.peer(); }

 private:
  Status WithPeer(const Status& status) const;

  SendCursor cursor_;
  const Link& link_;
  const size_t max_bytes_;
  const RankSet& ranks_;
};

class ReceiveStream {
 public:
  ReceiveStream(uint64_t tag, Incoming& incoming, const Link& link,
                const RankSet& ranks);

  // Reads once, into the header and what is allowed.
  Result<Moved> Advance();
  bool done() const { return cursor_.done(); }
  // Returns whether bytes may be received now.
  bool ready() const { return cursor_.ready(); }
  // The number of bytes that have not arrived.
  uint64_t left() const { return cursor_.left(); }
  const Link& link() const { return link_; }
  int peer() const { return cursor_.peer(); }

 private:
  ReceiveCursor cursor_;
  const Link& link_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_PLAN_STREAMS_H_
