#include "csrc/comm/transport/duplex_stream.h"

#include <sys/uio.h>

#include <algorithm>
#include <string>

namespace keras_ring {
namespace {

// Segments handed to the system in one call.
constexpr size_t kMaxParts = 32;

template <typename Segments>
uint64_t TotalBytes(const Segments& segments) {
  uint64_t total = 0;
  for (const auto& segment : segments) total += segment.bytes;
  return total;
}

}  // namespace

SendStream::SendStream(const SendReceivePlan& duplex, const Link* link,
                       const RankSet& ranks)
    : duplex_(duplex), link_(link), ranks_(ranks), done_(duplex.to < 0) {
  if (!done_) {
    EncodeDataHeader({duplex.tag, TotalBytes(duplex.sends)}, header_);
  }
}

bool SendStream::ready() const {
  if (done_) return false;
  return header_sent_ < sizeof(header_) ||
         segment_ < std::min(duplex_.released, duplex_.sends.size());
}

Result<size_t> SendStream::Advance() {
  if (!ready()) return size_t{0};
  iovec parts[kMaxParts];
  size_t num_parts = 0;
  if (header_sent_ < sizeof(header_)) {
    parts[num_parts++] = {header_ + header_sent_,
                          sizeof(header_) - header_sent_};
  }
  const size_t released = std::min(duplex_.released, duplex_.sends.size());
  size_t offset = offset_;
  for (size_t i = segment_; i < released && num_parts < kMaxParts; ++i) {
    const ConstSegment& segment = duplex_.sends[i];
    if (segment.bytes > offset) {
      const char* data = static_cast<const char*>(segment.data) + offset;
      parts[num_parts++] = {const_cast<char*>(data), segment.bytes - offset};
    }
    offset = 0;
  }
  size_t sent = 0;
  if (num_parts > 0) {  // none: only empty segments are released
    const Result<size_t> result = link_->Send(parts, num_parts);
    if (!result.ok()) {
      return result.status().WithContext(
          "sending to rank " + std::to_string(ranks_.Global(duplex_.to)));
    }
    sent = *result;
    if (sent == 0) return sent;
  }
  Skip(sent);
  return sent;
}

void SendStream::Skip(size_t bytes) {
  const size_t of_header = std::min(bytes, sizeof(header_) - header_sent_);
  header_sent_ += of_header;
  bytes -= of_header;
  if (header_sent_ < sizeof(header_)) return;
  const size_t released = std::min(duplex_.released, duplex_.sends.size());
  while (segment_ < released) {
    const size_t left = duplex_.sends[segment_].bytes - offset_;
    if (bytes < left) {
      offset_ += bytes;
      return;
    }
    bytes -= left;
    ++segment_;
    offset_ = 0;
  }
  done_ = segment_ == duplex_.sends.size();
}

ReceiveStream::ReceiveStream(SendReceivePlan& duplex, const Link* link,
                             const RankSet& ranks)
    : duplex_(duplex), link_(link), ranks_(ranks), done_(duplex.from < 0) {
  if (!done_) total_ = TotalBytes(duplex.receives);
}

std::string ReceiveStream::PeerText() const {
  return "rank " + std::to_string(ranks_.Global(duplex_.from));
}

Status ReceiveStream::CheckHeader() const {
  DataHeader header;
  const std::string peer = PeerText();
  if (!DecodeDataHeader(header_, &header)) {
    return InternalError("what " + peer + " sent is no data header");
  }
  if (header.tag != duplex_.tag) {
    return InternalError(
        peer + " runs collective " + std::to_string(header.tag) +
        ", this rank collective " + std::to_string(duplex_.tag));
  }
  if (header.bytes != total_) {
    return InternalError(peer + " sends " + std::to_string(header.bytes) +
                         " bytes in collective " + std::to_string(duplex_.tag) +
                         ", this rank expects " + std::to_string(total_));
  }
  return OkStatus();
}

// Reports every segment that is full: the current one, and empty ones after
// it.
void ReceiveStream::Complete() {
  while (segment_ < duplex_.receives.size() &&
         offset_ == duplex_.receives[segment_].bytes) {
    if (duplex_.on_received) {
      duplex_.released =
          std::max(duplex_.released, duplex_.on_received(segment_));
    }
    ++segment_;
    offset_ = 0;
  }
  done_ = segment_ == duplex_.receives.size();
}

Result<size_t> ReceiveStream::Advance() {
  if (done_) return size_t{0};
  // The header and the first segment come in one read. Should the header turn
  // out wrong, the segment holds rubbish; but then the collective has failed.
  iovec parts[2];
  size_t num_parts = 0;
  if (header_got_ < sizeof(header_)) {
    parts[num_parts++] = {header_ + header_got_, sizeof(header_) - header_got_};
  }
  if (segment_ < duplex_.receives.size()) {
    const Segment& segment = duplex_.receives[segment_];
    if (segment.bytes > offset_) {
      parts[num_parts++] = {static_cast<char*>(segment.data) + offset_,
                            segment.bytes - offset_};
    }
  }
  const Result<Received> received = link_->Receive(parts, num_parts);
  if (!received.ok()) {
    return received.status().WithContext("receiving from " + PeerText());
  }
  if (received->ended) {
    return UnavailableError(PeerText() + " closed the connection");
  }
  const size_t got = received->bytes;
  if (got == 0) return got;
  size_t of_segment = got;
  if (header_got_ < sizeof(header_)) {
    const size_t of_header = std::min(got, sizeof(header_) - header_got_);
    header_got_ += of_header;
    of_segment -= of_header;
    if (header_got_ < sizeof(header_)) return got;
    KR_RETURN_IF_ERROR(CheckHeader());
  }
  offset_ += of_segment;
  Complete();
  return got;
}

}  // namespace keras_ring
