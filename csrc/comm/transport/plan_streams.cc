#include "csrc/comm/transport/plan_streams.h"

#include <algorithm>
#include <string>

namespace keras_ring {
namespace {

// The limit of one read: the bytes are then used while they are in the core's
// cache.
constexpr size_t kMaxReadBytes = size_t{256} << 10;

// Returns whether the system had no room, or no bytes, for the rest of `parts`.
// With TLS a short count only means the end of a record.
bool IsBlocked(const Link& link, size_t moved, const Parts& parts) {
  if (link.encrypted()) return moved == 0 && parts.count() > 0;
  return moved < parts.bytes();
}

}  // namespace

SendStream::SendStream(uint64_t tag, Outgoing& outgoing, const Link& link,
                       size_t max_bytes, const RankSet& ranks)
    : cursor_(tag, outgoing),
      link_(link),
      max_bytes_(max_bytes),
      ranks_(ranks) {}

Result<Moved> SendStream::Advance() {
  if (!ready()) return Moved();
  Parts parts(2 * max_bytes_);
  cursor_.AddTo(parts);
  // Bytes beyond whole quanta are sent before the last quantum: after it, a
  // link that spaces packets would hold them back for as long as that one
  // takes.
  if (parts.bytes() > max_bytes_) {
    parts.Keep(std::min(max_bytes_, parts.bytes() - max_bytes_));
  }
  size_t sent = 0;
  if (parts.count() > 0) {
    const Result<size_t> result = link_.Send(parts.data(), parts.count());
    if (!result.ok()) return WithPeer(result.status());
    sent = *result;
  }
  cursor_.Skip(sent);
  return Moved{sent, IsBlocked(link_, sent, parts)};
}

Status SendStream::WithPeer(const Status& status) const {
  return status.WithContext("sending to rank " +
                            std::to_string(ranks_.Global(peer())));
}

Status SendStream::Failure() const {
  return WithPeer(SocketFailure(link_.socket()));
}

ReceiveStream::ReceiveStream(uint64_t tag, Incoming& incoming, const Link& link,
                             const RankSet& ranks)
    : cursor_(tag, incoming, ranks), link_(link) {}

Result<Moved> ReceiveStream::Advance() {
  if (!ready()) return Moved();
  Parts parts(kMaxReadBytes);
  cursor_.AddTo(parts);
  size_t got = 0;
  if (parts.count() > 0) {  // none: only empty segments are allowed
    const Result<Received> received =
        link_.Receive(parts.data(), parts.count());
    if (!received.ok()) {
      return received.status().WithContext("receiving from " +
                                           cursor_.PeerText());
    }
    if (received->ended) {
      return UnavailableError(cursor_.PeerText() + " closed the connection");
    }
    got = received->bytes;
  }
  KR_RETURN_IF_ERROR(cursor_.Fill(got));
  return Moved{got, IsBlocked(link_, got, parts)};
}

}  // namespace keras_ring
