#include "csrc/comm/transport/stream_cursors.h"

#include <algorithm>

namespace keras_ring {
namespace {

template <typename Segments>
uint64_t TotalBytes(const Segments& segments) {
  uint64_t total = 0;
  for (const auto& segment : segments) total += segment.bytes;
  return total;
}

// Advances (`segment`, `offset`) by `bytes`, past full or empty segments.
template <typename Segments>
void SkipBytes(const Segments& segments, size_t end, size_t bytes,
               size_t& segment, size_t& offset) {
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

void Parts::Add(const void* data, size_t bytes) {
  if (bytes == 0 || full()) return;
  bytes = std::min(bytes, room_);
  parts_[count_++] = {const_cast<void*>(data), bytes};
  room_ -= bytes;
}

void Parts::Keep(size_t bytes) {
  while (this->bytes() > bytes) {
    iovec& last = parts_[count_ - 1];
    const size_t cut = std::min(last.iov_len, this->bytes() - bytes);
    last.iov_len -= cut;
    room_ += cut;
    if (last.iov_len == 0) --count_;
  }
}

SendCursor::SendCursor(uint64_t tag, Outgoing& outgoing) : outgoing_(outgoing) {
  EncodeDataHeader({tag, TotalBytes(outgoing.segments)}, header_);
}

size_t SendCursor::released() const {
  return std::min(outgoing_.released, outgoing_.segments.size());
}

bool SendCursor::ready() const {
  if (done_) return false;
  return header_sent_ < sizeof(header_) || outgoing_.sent < released();
}

void SendCursor::AddTo(Parts& parts) const {
  parts.Add(header_ + header_sent_, sizeof(header_) - header_sent_);
  parts.Add(outgoing_.segments, outgoing_.sent, released(), offset_);
}

void SendCursor::Skip(size_t bytes) {
  const size_t of_header = std::min(bytes, sizeof(header_) - header_sent_);
  header_sent_ += of_header;
  if (header_sent_ < sizeof(header_)) return;
  SkipBytes(outgoing_.segments, released(), bytes - of_header, outgoing_.sent,
            offset_);
  done_ = outgoing_.sent == outgoing_.segments.size();
}

ReceiveCursor::ReceiveCursor(uint64_t tag, Incoming& incoming,
                             const RankSet& ranks)
    : tag_(tag),
      incoming_(incoming),
      ranks_(ranks),
      total_(TotalBytes(incoming.segments)),
      left_(kDataHeaderBytes + total_) {}

std::string ReceiveCursor::PeerText() const {
  return "rank " + std::to_string(ranks_.Global(incoming_.peer));
}

size_t ReceiveCursor::allowed() const {
  return std::min(incoming_.allowed, incoming_.segments.size());
}

bool ReceiveCursor::ready() const {
  if (done_) return false;
  return header_got_ < sizeof(header_) || incoming_.received < allowed();
}

void ReceiveCursor::AddTo(Parts& parts) {
  parts.Add(header_ + header_got_, sizeof(header_) - header_got_);
  parts.Add(incoming_.segments, incoming_.received, allowed(), offset_);
}

Status ReceiveCursor::CheckHeader() const {
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

Status ReceiveCursor::Fill(size_t bytes) {
  left_ -= bytes;
  if (header_got_ < sizeof(header_)) {
    const size_t of_header = std::min(bytes, sizeof(header_) - header_got_);
    header_got_ += of_header;
    bytes -= of_header;
    if (header_got_ < sizeof(header_)) return OkStatus();
    KR_RETURN_IF_ERROR(CheckHeader());
  }
  SkipBytes(incoming_.segments, allowed(), bytes, incoming_.received, offset_);
  done_ = incoming_.received == incoming_.segments.size();
  return OkStatus();
}

}  // namespace keras_ring
