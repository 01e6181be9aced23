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

// How long an address may say nothing before the next one is tried, too.
constexpr Duration kConnectStagger = std::chrono::milliseconds(250);

// A connection to one of the addresses in these lists, the first ones first.
// One that does not answer holds the others up for `stagger` only: all that
// were tried go on being waited for, and the first to answer is taken (RFC
// 8305). If all refuse, what the first of them said; kDeadlineExceeded if one
// says nothing.
Result<Socket> ConnectToAny(const std::vector<const addrinfo*>& lists,
                            Deadline deadline,
                            Duration stagger = kConnectStagger);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_CONNECT_H_
