// Which ranks share a host.
#ifndef KERAS_RING_COMM_HOST_HOST_ID_H_
#define KERAS_RING_COMM_HOST_HOST_ID_H_

#include <string>

namespace keras_ring {

// Equal for processes that can meet by local sockets, hence share memory: those
// of one running system and one network namespace. Not the host's name, which
// hosts that were made from one image may have in common, and two containers of
// a host have not. That it is where the system tells nothing else. `proc`:
// where that is told, for tests.
std::string OwnHostId(const std::string& proc = "/proc");

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_HOST_ID_H_
