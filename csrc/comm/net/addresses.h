// Resolution of host names to addresses.
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

// `flags`: for getaddrinfo. kUnavailable if the name is not known, or not yet:
// a cluster may publish the name of a host only after the host has started.
Result<Addresses> Resolve(const std::string& host, uint16_t port, int flags);

// Splits a comma-separated list of hosts, and removes the brackets of IPv6
// addresses.
std::vector<std::string> SplitHosts(const std::string& hosts);

// Returns whether every address of `host` is a loopback address, as seen from
// here.
bool IsLoopback(const std::string& host);

// Returns whether `host` means loopback on every host: "localhost", or a
// loopback address. The name of a host may be loopback on that host only
// (Debian has "127.0.1.1 name" in /etc/hosts).
bool MeansLoopback(const std::string& host);

// Returns the address of this host from which packets to other hosts leave;
// empty if there is none.
std::string OutsideAddress();

// Returns the numeric form of an address; stores its port, too, unless `port`
// is null.
std::string NameOf(const sockaddr* address, socklen_t size,
                   std::string* port = nullptr);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_ADDRESSES_H_
