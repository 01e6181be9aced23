// Which ranks share a host.
#ifndef KERAS_RING_COMM_HOST_HOST_ID_H_
#define KERAS_RING_COMM_HOST_HOST_ID_H_

#include <string>

namespace keras_ring {

// Returns an id that is equal for processes that can connect by local sockets,
// hence share memory: those of one running system and one network namespace. It
// is not the host's name: hosts made from one image may share their name, and
// two containers of a host do not. The name is the last resort where the system
// tells nothing else. `proc`: where to read this from, for tests.
std::string OwnHostId(const std::string& proc = "/proc");

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_HOST_HOST_ID_H_
