// Sockets within a host, which pass descriptors between processes.
#ifndef KERAS_RING_COMM_NET_LOCAL_SOCKET_H_
#define KERAS_RING_COMM_NET_LOCAL_SOCKET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

// Names are in the abstract namespace: nothing appears in the file system, and
// a name is gone with its socket. 1 to 100 bytes.
Result<Socket> ListenLocal(const std::string& name);
Result<Socket> ConnectLocal(const std::string& name, Deadline deadline);
// Returns the next connection; drops those of other users.
Result<Socket> AcceptLocal(const Socket& listener, Deadline deadline);

// Returns the process id of the listener at the other end, or "unknown".
std::string PeerProcess(const Socket& socket);

// The receiver gets duplicates; the sender keeps its own.
Status SendDescriptors(const Socket& socket, const std::vector<int>& fds,
                       Deadline deadline);
Result<std::vector<Socket>> ReceiveDescriptors(const Socket& socket,
                                               size_t count, Deadline deadline);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_LOCAL_SOCKET_H_
