// Link: an authenticated connection to another rank, as a stream of bytes that
// never blocks; plain, or encrypted.
#ifndef KERAS_RING_COMM_NET_LINK_H_
#define KERAS_RING_COMM_NET_LINK_H_

#include <sys/uio.h>

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/net/tls.h"

namespace keras_ring {

class Link {
 public:
  Link() = default;
  // `session`: over `socket`, after its handshake; null: bytes go as they are.
  explicit Link(Socket socket, std::unique_ptr<TlsSession> session = nullptr)
      : socket_(std::move(socket)), session_(std::move(session)) {}

  // To be polled, asked for names, and looked at; bytes go through the link.
  const Socket& socket() const { return socket_; }
  bool valid() const { return socket_.valid(); }
  void Close() { socket_.Close(); }
  bool encrypted() const { return session_ != nullptr; }

  // Hands the system what it takes of `parts`. Returns how many bytes; 0 for
  // none now.
  Result<size_t> Send(const iovec* parts, size_t num_parts) const;
  // Takes what has come, as far as there is room in `parts`. What of a record
  // of TLS finds no room is kept here, where no poll sees it: so wait only
  // after a Receive of nothing, or one with room for kMaxTlsRecordBytes.
  Result<Received> Receive(const iovec* parts, size_t num_parts) const;

 private:
  Socket socket_;
  std::unique_ptr<TlsSession> session_;
};

// By the rank at the other end.
using Links = std::map<int, Link>;

Status ReadFull(const Link& link, void* data, size_t bytes, Deadline deadline);
Status WriteFull(const Link& link, const void* data, size_t bytes,
                 Deadline deadline);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_LINK_H_
