// The MPI of this process: the one that mpi4py has loaded and started.
//
// csrc is built without any MPI. What MPIs differ in is little, and mpi4py says
// it (MpiSettings): whether a handle is an int or a pointer, and the handles
// that are used here. All else is the same by the standard; the functions are
// looked up by their names. So whatever MPI mpi4py runs on will do.
#ifndef KERAS_RING_COMM_TRANSPORT_MPI_LIBRARY_H_
#define KERAS_RING_COMM_TRANSPORT_MPI_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/comm/transport/mpi_port.h"

namespace keras_ring {

// What mpi4py tells of its MPI, for this process alone.
struct MpiSettings {
  int handle_bytes = 0;       // of an MPI_Comm
  uint64_t communicator = 0;  // the ranks of the job, in their order
  uint64_t byte_type = 0;     // MPI_BYTE
  std::string path;           // of a library that is linked with the MPI

  // Of "8 94837498837 94837400032 /usr/lib/...", in this order.
  static Result<MpiSettings> Parse(const std::string& text);
};

// Where a rank of a group is.
struct MpiPeer {
  int rank = 0;  // in the communicator
  int send_tag = 0;
  int receive_tag = 0;
};

// By the number of the peer. `owns_communicator`: frees it in the end, which
// all ranks of it do. MPI must take calls of several threads at a time.
Result<std::unique_ptr<MpiPort>> NewMpiPort(const MpiSettings& settings,
                                            std::vector<MpiPeer> peers,
                                            bool owns_communicator);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MPI_LIBRARY_H_
