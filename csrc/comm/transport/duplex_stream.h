// The two halves of a SendReceivePlan on links: what is left to send and what
// is left to receive, each advanced as far as its link allows.
#ifndef KERAS_RING_COMM_TRANSPORT_DUPLEX_STREAM_H_
#define KERAS_RING_COMM_TRANSPORT_DUPLEX_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/transport/data_header.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

class SendStream {
 public:
  // All must outlive the stream. `link`: null when there is nothing to send.
  // `ranks`: those that the duplex names.
  SendStream(const SendReceivePlan& duplex, const Link* link,
             const RankSet& ranks);

  // One send of what is released. Returns the bytes that left; 0 when the
  // link takes none now or nothing is released.
  Result<size_t> Advance();
  // Sends nothing any more: all has left.
  bool done() const { return done_; }
  // Whether a segment (or the header) may leave now.
  bool ready() const;

 private:
  void Skip(size_t bytes);

  const SendReceivePlan& duplex_;
  const Link* const link_;
  const RankSet& ranks_;
  bool done_;
  uint8_t header_[kDataHeaderBytes];
  size_t header_sent_ = 0;
  size_t segment_ = 0;  // first that has not left in full
  size_t offset_ = 0;   // of it, bytes that have
};

class ReceiveStream {
 public:
  ReceiveStream(SendReceivePlan& duplex, const Link* link,
                const RankSet& ranks);

  // One read, into the header or the current segment; runs on_received for
  // what it completes. Returns the bytes that came; 0 for none now.
  Result<size_t> Advance();
  bool done() const { return done_; }

 private:
  Status CheckHeader() const;
  void Complete();
  // "rank 3"
  std::string PeerText() const;

  SendReceivePlan& duplex_;
  const Link* const link_;
  const RankSet& ranks_;
  bool done_;
  uint64_t total_ = 0;
  uint8_t header_[kDataHeaderBytes];
  size_t header_got_ = 0;
  size_t segment_ = 0;
  size_t offset_ = 0;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_DUPLEX_STREAM_H_
