// LocalLink: frames to and from one rank of the same host.
#ifndef KERAS_RING_COMM_TRANSPORT_LOCAL_LINK_H_
#define KERAS_RING_COMM_TRANSPORT_LOCAL_LINK_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "csrc/base/status.h"
#include "csrc/comm/host/doorbell.h"
#include "csrc/comm/host/host_group.h"
#include "csrc/comm/host/shm_stream.h"
#include "csrc/comm/net/frame.h"

namespace keras_ring {

// The control part of each rank's segment: its bell, then the streams to the
// ranks of the host.
struct ControlPage {
  Doorbell bell;
  ShmStream to[1];  // in fact, one per rank

  static size_t BytesFor(int size) {
    return sizeof(ControlPage) + (size - 1) * sizeof(ShmStream);
  }
  static ControlPage& Of(const HostGroup& group, int index) {
    return *reinterpret_cast<ControlPage*>(group.control(index));
  }
};

class LocalLink {
 public:
  // `group` must outlive the link. `peer`: a local rank.
  LocalLink(const HostGroup& group, int peer, size_t max_frame_bytes);

  // Writes the frame, or what fits, keeps the rest, and rings the bell. Returns
  // the size of the frame with its prefix.
  size_t Send(std::string_view frame);
  // Writes more of the kept bytes.
  void Flush();
  bool wants_write() const { return !output_.empty(); }

  bool readable() const { return !in_.empty(); }
  // Reads what has arrived; returns the number of bytes.
  Result<size_t> Read();
  // The next whole frame; see FrameReader::Next.
  Result<bool> Next(std::string_view* frame) { return reader_.Next(frame); }

 private:
  void Put(std::string_view bytes);

  ShmStream& out_;
  ShmStream& in_;
  Doorbell& bell_;  // the peer's
  const Socket& bell_fd_;
  FrameReader reader_;
  std::string output_;
};

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_LOCAL_LINK_H_
