#include "csrc/comm/transport/local_link.h"

namespace keras_ring {

LocalLink::LocalLink(const HostGroup& group, int peer, size_t max_frame_bytes)
    : out_(ControlPage::Of(group, group.local_rank()).to[peer]),
      in_(ControlPage::Of(group, peer).to[group.local_rank()]),
      bell_(ControlPage::Of(group, peer).bell),
      bell_fd_(group.bell(peer)),
      reader_(max_frame_bytes) {}

void LocalLink::Put(std::string_view bytes) {
  size_t written = output_.empty() ? out_.Write(bytes) : 0;
  output_.append(bytes.substr(written));
}

size_t LocalLink::Send(std::string_view frame) {
  char prefix[10];
  const size_t prefix_bytes = EncodeFrameLength(frame.size(), prefix);
  Put(std::string_view(prefix, prefix_bytes));
  Put(frame);
  bell_.Notify(bell_fd_);
  return prefix_bytes + frame.size();
}

void LocalLink::Flush() {
  if (output_.empty()) return;
  const size_t written = out_.Write(output_);
  output_.erase(0, written);
  if (written > 0) bell_.Notify(bell_fd_);
}

Result<size_t> LocalLink::Read() {
  KR_ASSIGN_OR_RETURN(size_t got, in_.Read([this](std::string_view bytes) {
    reader_.Append(bytes);
  }));
  if (got > 0 && in_.TakeWriterWaits()) bell_.Notify(bell_fd_);
  return got;
}

}  // namespace keras_ring
