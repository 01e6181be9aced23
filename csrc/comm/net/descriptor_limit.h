// The limit of open files, which a large job would reach.
#ifndef KERAS_RING_COMM_NET_DESCRIPTOR_LIMIT_H_
#define KERAS_RING_COMM_NET_DESCRIPTOR_LIMIT_H_

#include <cstddef>
#include <string>

#include "csrc/base/status.h"

namespace keras_ring {

// Makes room for `count` descriptors besides those that are open: raises this
// process's limit as far as it may, and no further than needed.
// kResourceExhausted, naming `purpose`, if that is not enough.
Status MakeRoomForDescriptors(size_t count, const std::string& purpose);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_NET_DESCRIPTOR_LIMIT_H_
