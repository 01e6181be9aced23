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
  // `session`: over `socket`, after its handshake; null: the link is plain.
  explicit Link(Socket socket, std::unique_ptr<TlsSession> session = nullptr)
      : socket_(std::move(socket)), session_(std::move(session)) {}

  // For polling, names and checks; bytes must go through the link.
  const Socket& socket() const { return socket_; }
  bool valid() const { return socket_.valid(); }
  void Close() { socket_.Close(); }
  bool encrypted() const { return session_ != nullptr; }

  // Sends as many bytes of `parts` as the system takes now. Returns their
  // number, which may be 0.
  Result<size_t> Send(const iovec* parts, size_t num_parts) const;
  // Receives what has arrived, as far as there is room in `parts`. The rest of
  // a TLS record that finds no room is kept here, where poll does not see it:
  // so wait only after a Receive that returned nothing, or that had room for
  // kMaxTlsRecordBytes.
  Result<Received> Receive(const iovec* parts, size_t num_parts) const;

 private:
  Socket socket_;
  std::unique_ptr<TlsSession> session_;
};

// Keyed by the rank at the other end.
using Links = std::map<int, Link>;

Status ReadFull(const Link& link, void* data, size_t bytes, Deadline deadline);
Status WriteFull(const Link& link, const void* data, size_t bytes,
                 Deadline deadline);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_LINK_H_
