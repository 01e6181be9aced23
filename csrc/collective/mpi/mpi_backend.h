// The backend that sends through the MPI which has started the ranks: under the
// hierarchy where possible.
#ifndef KERAS_RING_COLLECTIVE_MPI_MPI_BACKEND_H_
#define KERAS_RING_COLLECTIVE_MPI_MPI_BACKEND_H_

#include "csrc/collective/backend.h"

namespace keras_ring {

extern const CollectiveBackend kMpiBackend;

}  // namespace keras_ring

#endif  // KERAS_RING_COLLECTIVE_MPI_MPI_BACKEND_H_
