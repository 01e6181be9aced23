// A ring of TCP connections, as a backend.
#ifndef KERAS_RING_COLLECTIVE_NET_RING_BACKEND_H_
#define KERAS_RING_COLLECTIVE_NET_RING_BACKEND_H_

#include "csrc/collective/backend.h"

namespace keras_ring {

extern const CollectiveBackend kRingBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_NET_RING_BACKEND_H_
