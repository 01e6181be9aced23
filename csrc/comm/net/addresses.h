// The addresses that names of hosts stand for.
#ifndef KERAS_RING_COMM_NET_ADDRESSES_H_
#define KERAS_RING_COMM_NET_ADDRESSES_H_

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"

namespace keras_ring {

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// `flags`: as of getaddrinfo. kUnavailable if the name is not known, or not
// yet: a cluster may publish the name of a host that starts after it has.
Result<Addresses> Resolve(const std::string& host, uint16_t port, int flags);

// The hosts in a list that is separated by commas, each without the brackets of
// an IPv6 address.
std::vector<std::string> SplitHosts(const std::string& hosts);

// Whether every address of `host` is a loopback address, as seen from here.
bool IsLoopback(const std::string& host);

// Whether `host` means loopback wherever it is said: "localhost", or a loopback
// address. The name of a host may be loopback on that host alone (Debian has
// "127.0.1.1 name" in /etc/hosts).
bool MeansLoopback(const std::string& host);

// The address of this host from which packets to others leave; empty if none
// would.
std::string OutsideAddress();

// An address as numbers; its port, too, unless `port` is null.
std::string NameOf(const sockaddr* address, socklen_t size,
                   std::string* port = nullptr);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_ADDRESSES_H_
