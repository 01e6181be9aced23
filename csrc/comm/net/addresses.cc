#include "csrc/comm/net/addresses.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "csrc/comm/net/socket.h"

namespace keras_ring {
namespace {

bool IsLoopbackAddress(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    uint32_t ip =
        ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return (ip >> 24) == 127;
  }
  if (address->sa_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(
        &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return false;
}

bool AllAreLoopback(const Result<Addresses>& addresses) {
  if (!addresses.ok()) return false;
  for (const addrinfo* it = addresses->get(); it != nullptr; it = it->ai_next) {
    if (!IsLoopbackAddress(it->ai_addr)) return false;
  }
  return true;
}

// Nobody has these addresses (RFC 5737 and 3849), and nothing is sent there: to
// connect a datagram's socket is to ask for the route.
constexpr const char* kElsewhere[] = {"192.0.2.1", "2001:db8::1"};
constexpr uint16_t kAnyPort = 9;

}  // namespace

Result<Addresses> Resolve(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(),
                                std::to_string(port).c_str(), &hints, &list);
  if (error == 0) return Addresses(list);
  const std::string text =
      "cannot resolve the host '" + host + "': " + gai_strerror(error);
  switch (error) {
    case EAI_AGAIN:
    case EAI_FAIL:
    case EAI_NODATA:
    case EAI_NONAME:
      return UnavailableError(text);
    default:
      return InvalidArgumentError(text);
  }
}

std::vector<std::string> SplitHosts(const std::string& hosts) {
  std::vector<std::string> result;
  size_t begin = 0;
  while (begin <= hosts.size()) {
    const size_t end = std::min(hosts.find(',', begin), hosts.size());
    std::string host = hosts.substr(begin, end - begin);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
      host = host.substr(1, host.size() - 2);
    }
    result.push_back(std::move(host));
    begin = end + 1;
  }
  return result;
}

bool IsLoopback(const std::string& host) {
  return !host.empty() && AllAreLoopback(Resolve(host, 0, 0));
}

bool MeansLoopback(const std::string& host) {
  if (host.empty()) return false;
  return host == "localhost" ||
         AllAreLoopback(Resolve(host, 0, AI_NUMERICHOST));
}

std::string OutsideAddress() {
  for (const char* elsewhere : kElsewhere) {
    const Result<Addresses> there =
        Resolve(elsewhere, kAnyPort, AI_NUMERICHOST);
    if (!there.ok()) continue;
    const addrinfo& address = **there;
    const Socket socket(
        ::socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket.valid() ||
        connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0) {
      continue;
    }
    const Result<std::string> here = LocalAddress(socket);
    if (here.ok() && !here->empty() && !MeansLoopback(*here)) return *here;
  }
  return "";
}

std::string NameOf(const sockaddr* address, socklen_t size, std::string* port) {
  char host[NI_MAXHOST];
  char service[NI_MAXSERV];
  if (getnameinfo(address, size, host, sizeof(host), service, sizeof(service),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return std::string();
  }
  if (port != nullptr) *port = service;
  return host;
}

}  // namespace keras_ring
