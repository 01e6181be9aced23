// The MPI of this process: the one that mpi4py has loaded and started.
//
// csrc is built without any MPI. MPIs differ in few things, and mpi4py reports
// them (MpiSettings): whether a handle is an int or a pointer, and the values
// of the handles that are used here. Everything else is fixed by the standard;
// the functions are looked up by name. So any MPI that mpi4py runs on will do.
#ifndef KERAS_RING_COMM_TRANSPORT_MPI_LIBRARY_H_
#define KERAS_RING_COMM_TRANSPORT_MPI_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/comm/transport/mpi_port.h"

namespace keras_ring {

// The handles of mpi4py's MPI; valid in this process only.
struct MpiSettings {
  int handle_bytes = 0;       // of an MPI_Comm
  uint64_t communicator = 0;  // the ranks of the job, in their order
  uint64_t byte_type = 0;     // MPI_BYTE
  std::string path;           // of a library that is linked with the MPI

  // Parses "8 94837498837 94837400032 /usr/lib/...": the members in this order.
  static Result<MpiSettings> Parse(const std::string& text);
};

// How to address a rank of a group.
struct MpiPeer {
  int rank = 0;  // in the communicator
  int send_tag = 0;
  int receive_tag = 0;
};

// `peers`: by the number of the peer. `owns_communicator`: the port frees the
// communicator in the end, which all of its ranks must do. MPI must allow calls
// of several threads at a time (MPI_THREAD_MULTIPLE).
Result<std::unique_ptr<MpiPort>> NewMpiPort(const MpiSettings& settings,
                                            std::vector<MpiPeer> peers,
                                            bool owns_communicator);

}  // namespace keras_ring

#endif  // KERAS_RING_COMM_TRANSPORT_MPI_LIBRARY_H_
