// The positions of a SendReceivePlan's streams: what is left to send to a peer
// and to receive from one, header included. They move nothing themselves.
#ifndef KERAS_RING_COMM_TRANSPORT_STREAM_CURSORS_H_
#define KERAS_RING_COMM_TRANSPORT_STREAM_CURSORS_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/base/rank_set.h"
#include "csrc/base/status.h"
#include "csrc/comm/transport/data_header.h"
#include "csrc/comm/transport/transport.h"

namespace keras_ring {

// The pieces of memory of one transfer, up to a limit.
class Parts {
 public:
  explicit Parts(size_t max_bytes) : max_bytes_(max_bytes), room_(max_bytes) {}

  bool full() const { return count_ == kMaxParts || room_ == 0; }
  size_t count() const { return count_; }
  size_t bytes() const { return max_bytes_ - room_; }
  const iovec* data() const { return parts_; }
  const iovec* begin() const { return parts_; }
  const iovec* end() const { return parts_ + count_; }

  // Keeps only the first `bytes` of them.
  void Keep(size_t bytes);
  // Adds `bytes`, or as many as there is room for.
  void Add(const void* data, size_t bytes);
  // Adds segments [begin, end), the first from `offset` on.
  template <typename Segments>
  void Add(const Segments& segments, size_t begin, size_t end, size_t offset) {
    for (size_t i = begin; i < end && !full(); ++i) {
      Add(static_cast<const char*>(segments[i].data) + offset,
          segments[i].bytes - offset);
      offset = 0;
    }
  }

 private:
  // All parts are handed to the system in one call.
  static constexpr size_t kMaxParts = 256;

  const size_t max_bytes_;
  size_t room_;
  size_t count_ = 0;
  iovec parts_[kMaxParts];
};

// The result of one transfer.
struct Moved {
  size_t bytes = 0;
  // No more is accepted now, or no more is there.
  bool blocked = false;
};

class SendCursor {
 public:
  // `outgoing` must outlive it.
  SendCursor(uint64_t tag, Outgoing& outgoing);

  int peer() const { return outgoing_.peer; }
  // Returns whether nothing is left: all has been skipped.
  bool done() const { return done_; }
  // Returns whether a segment (or the header) may leave now.
  bool ready() const;
  // Adds what may leave now. It may be nothing though ready() is true: if only
  // empty segments are released.
  void AddTo(Parts& parts) const;
  // `bytes` of that have left.
  void Skip(size_t bytes);

 private:
  size_t released() const;

  Outgoing& outgoing_;
  bool done_ = false;
  uint8_t header_[kDataHeaderBytes];
  size_t header_sent_ = 0;
  size_t offset_ = 0;  // of the first segment that has not left in full
};

class ReceiveCursor {
 public:
  // Both references must outlive it. `ranks`: the set that the plan's ranks are
  // counted in.
  ReceiveCursor(uint64_t tag, Incoming& incoming, const RankSet& ranks);

  int peer() const { return incoming_.peer; }
  // "rank 3"
  std::string PeerText() const;
  bool done() const { return done_; }
  // Returns whether bytes may be received now.
  bool ready() const;
  // The number of bytes that have not arrived.
  uint64_t left() const { return left_; }
  // Adds the memory for them. The header and the first segments may arrive at
  // once: if the header turns out to be wrong, the segments hold garbage; but
  // then the collective has failed.
  void AddTo(Parts& parts);
  // `bytes` have arrived. An error if the header is wrong.
  Status Fill(size_t bytes);

 private:
  size_t allowed() const;
  Status CheckHeader() const;

  const uint64_t tag_;
  Incoming& incoming_;
  const RankSet& ranks_;
  bool done_ = false;
  const uint64_t total_;
  uint64_t left_;
  uint8_t header_[kDataHeaderBytes];
  size_t header_got_ = 0;
  size_t offset_ = 0;  // of the first segment that has not come in full
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_STREAM_CURSORS_H_
