// Connections to a host with several addresses.
#ifndef KERAS_RING_COMM_NET_CONNECT_H_
#define KERAS_RING_COMM_NET_CONNECT_H_

#include <chrono>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/status.h"
#include "csrc/comm/net/addresses.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

// How long to wait for an address before the next one is tried, too.
constexpr Duration kConnectStagger = std::chrono::milliseconds(250);

// Connects to one of the addresses in these lists, trying the first ones first.
// An address that does not answer delays the next one by `stagger` only: all
// attempts stay pending, and the first one to succeed is taken (RFC 8305). If
// all fail, returns the first error; kDeadlineExceeded if one does not answer.
Result<Socket> ConnectToAny(const std::vector<const addrinfo*>& lists,
                            Deadline deadline,
                            Duration stagger = kConnectStagger);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_CONNECT_H_
