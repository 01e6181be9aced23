#include "csrc/comm/transport/plan_streams.h"

#include <sys/uio.h>

#include <algorithm>
#include <string>

namespace keras_ring {
namespace {

// Segments handed to the system in one call.
constexpr size_t kMaxParts = 256;

// Read in one call: what is then used while it is in the core's cache.
constexpr size_t kMaxReadBytes = size_t{256} << 10;

template <typename Segments>
uint64_t TotalBytes(const Segments& segments) {
  uint64_t total = 0;
  for (const auto& segment : segments) total += segment.bytes;
  return total;
}

// What one call hands to the system: pieces of memory, up to a limit.
class Parts {
 public:
  explicit Parts(size_t max_bytes) : room_(max_bytes) {}

  bool full() const { return count_ == kMaxParts || room_ == 0; }
  size_t count() const { return count_; }
  const iovec* data() const { return parts_; }

  // No part of `bytes` that finds no room.
  void Add(const void* data, size_t bytes) {
    if (bytes == 0 || full()) return;
    bytes = std::min(bytes, room_);
    parts_[count_++] = {const_cast<void*>(data), bytes};
    room_ -= bytes;
  }
  // Segments [begin, end), the first from `offset` on.
  template <typename Segments>
  void Add(const Segments& segments, size_t begin, size_t end, size_t offset) {
    for (size_t i = begin; i < end && !full(); ++i) {
      Add(static_cast<const char*>(segments[i].data) + offset,
          segments[i].bytes - offset);
      offset = 0;
    }
  }

 private:
  size_t room_;
  size_t count_ = 0;
  iovec parts_[kMaxParts];
};

// Moves (`segment`, `offset`) on by `bytes`, over what is full or empty.
template <typename Segments>
void Skip(const Segments& segments, size_t end, size_t bytes, size_t& segment,
          size_t& offset) {
  while (segment < end) {
    const size_t left = segments[segment].bytes - offset;
    if (bytes < left) {
      offset += bytes;
      return;
    }
    bytes -= left;
    ++segment;
    offset = 0;
  }
}

}  // namespace

SendStream::SendStream(uint64_t tag, Outgoing& outgoing, const Link& link,
                       size_t max_bytes, const RankSet& ranks)
    : outgoing_(outgoing), link_(link), max_bytes_(max_bytes), ranks_(ranks) {
  EncodeDataHeader({tag, TotalBytes(outgoing.segments)}, header_);
}

size_t SendStream::released() const {
  return std::min(outgoing_.released, outgoing_.segments.size());
}

bool SendStream::ready() const {
  if (done_) return false;
  return header_sent_ < sizeof(header_) || outgoing_.sent < released();
}

Result<Moved> SendStream::Advance() {
  if (!ready()) return Moved();
  Parts parts(max_bytes_);
  parts.Add(header_ + header_sent_, sizeof(header_) - header_sent_);
  parts.Add(outgoing_.segments, outgoing_.sent, released(), offset_);
  size_t sent = 0;
  if (parts.count() > 0) {  // none: only empty segments are released
    const Result<size_t> result = link_.Send(parts.data(), parts.count());
    if (!result.ok()) return WithPeer(result.status());
    sent = *result;
    if (sent == 0) return Moved{0, /*blocked=*/true};
  }
  Skip(sent);
  return Moved{sent};
}

Status SendStream::WithPeer(const Status& status) const {
  return status.WithContext("sending to rank " +
                            std::to_string(ranks_.Global(outgoing_.peer)));
}

Status SendStream::Failure() const {
  return WithPeer(SocketFailure(link_.socket()));
}

void SendStream::Skip(size_t bytes) {
  const size_t of_header = std::min(bytes, sizeof(header_) - header_sent_);
  header_sent_ += of_header;
  if (header_sent_ < sizeof(header_)) return;
  keras_ring::Skip(outgoing_.segments, released(), bytes - of_header,
                   outgoing_.sent, offset_);
  done_ = outgoing_.sent == outgoing_.segments.size();
}

ReceiveStream::ReceiveStream(uint64_t tag, Incoming& incoming, const Link& link,
                             const RankSet& ranks)
    : tag_(tag),
      incoming_(incoming),
      link_(link),
      ranks_(ranks),
      total_(TotalBytes(incoming.segments)) {}

std::string ReceiveStream::PeerText() const {
  return "rank " + std::to_string(ranks_.Global(incoming_.peer));
}

size_t ReceiveStream::allowed() const {
  return std::min(incoming_.allowed, incoming_.segments.size());
}

bool ReceiveStream::ready() const {
  if (done_) return false;
  return header_got_ < sizeof(header_) || incoming_.received < allowed();
}

Status ReceiveStream::CheckHeader() const {
  DataHeader header;
  const std::string peer = PeerText();
  if (!DecodeDataHeader(header_, &header)) {
    return InternalError("what " + peer + " sent is no data header");
  }
  if (header.tag != tag_) {
    return InternalError(peer + " runs collective " +
                         std::to_string(header.tag) +
                         ", this rank collective " + std::to_string(tag_));
  }
  if (header.bytes != total_) {
    return InternalError(peer + " sends " + std::to_string(header.bytes) +
                         " bytes in collective " + std::to_string(tag_) +
                         ", this rank expects " + std::to_string(total_));
  }
  return OkStatus();
}

void ReceiveStream::Fill(size_t bytes) {
  Skip(incoming_.segments, allowed(), bytes, incoming_.received, offset_);
  done_ = incoming_.received == incoming_.segments.size();
}

Result<Moved> ReceiveStream::Advance() {
  if (!ready()) return Moved();
  // The header and the first segments come in one read. Should the header turn
  // out wrong, the segments hold rubbish; but then the collective has failed.
  Parts parts(kMaxReadBytes);
  parts.Add(header_ + header_got_, sizeof(header_) - header_got_);
  parts.Add(incoming_.segments, incoming_.received, allowed(), offset_);
  size_t got = 0;
  if (parts.count() > 0) {  // none: only empty segments are allowed
    const Result<Received> received =
        link_.Receive(parts.data(), parts.count());
    if (!received.ok()) {
      return received.status().WithContext("receiving from " + PeerText());
    }
    if (received->ended) {
      return UnavailableError(PeerText() + " closed the connection");
    }
    got = received->bytes;
    if (got == 0) return Moved{0, /*blocked=*/true};
  }
  size_t of_segments = got;
  if (header_got_ < sizeof(header_)) {
    const size_t of_header = std::min(got, sizeof(header_) - header_got_);
    header_got_ += of_header;
    of_segments -= of_header;
    if (header_got_ < sizeof(header_)) return Moved{got};
    KR_RETURN_IF_ERROR(CheckHeader());
  }
  Fill(of_segments);
  return Moved{got};
}

}  // namespace keras_ring
