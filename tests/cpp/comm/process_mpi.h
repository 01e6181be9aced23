// The MPI that the environment names, for a process that is all of its ranks:
// each rank sends to the process itself, by tags of its own.
#ifndef KERAS_RING_TESTS_COMM_PROCESS_MPI_H_
#define KERAS_RING_TESTS_COMM_PROCESS_MPI_H_

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "csrc/comm/transport/mpi_library.h"

namespace keras_ring {

// Starts MPI, and does not end it: that would wait for messages that groups
// which have failed have left under way.
class ProcessMpi {
 public:
  // Path of an MPI's library, set by tests/cpp/CMakeLists.txt; or null.
  static const char* Path() { return std::getenv("KERAS_RING_TEST_MPI"); }

  static ProcessMpi& Get() {
    static auto* const mpi = new ProcessMpi;
    return *mpi;
  }

  std::vector<std::unique_ptr<MpiPort>> NewPorts(int size) {
    // No message of an earlier group, which may have failed, is taken for one
    // of this.
    const int first_tag = next_tag_;
    next_tag_ += size * size;
    std::vector<std::unique_ptr<MpiPort>> ports;
    for (int rank = 0; rank < size; ++rank) {
      std::vector<MpiPeer> peers;
      for (int peer = 0; peer < size; ++peer) {
        peers.push_back({0, first_tag + rank * size + peer,
                         first_tag + peer * size + rank});
      }
      auto port = NewMpiPort(settings_, std::move(peers),
                             /*owns_communicator=*/false);
      KR_CHECK(port.ok());
      ports.push_back(std::move(port).value());
    }
    return ports;
  }

  const MpiSettings& settings() const { return settings_; }

 private:
  ProcessMpi() {
    settings_.path = Path();
    void* const library = dlopen(Path(), RTLD_NOW | RTLD_LOCAL);
    KR_CHECK(library != nullptr);
    constexpr int kMultiple = 3;  // MPI_THREAD_MULTIPLE
    int provided = 0;
    reinterpret_cast<int (*)(int*, char***, int, int*)>(dlsym(
        library, "MPI_Init_thread"))(nullptr, nullptr, kMultiple, &provided);
    KR_CHECK(provided == kMultiple);
    // What mpi4py would tell of them.
    settings_.handle_bytes = sizeof(int);
    settings_.communicator = 0x44000001;
    settings_.byte_type = 0x4c00010d;
    void* const of_open_mpi = dlsym(library, "ompi_mpi_comm_self");
    if (of_open_mpi == nullptr) return;
    settings_.handle_bytes = sizeof(void*);
    settings_.communicator = reinterpret_cast<uint64_t>(of_open_mpi);
    settings_.byte_type =
        reinterpret_cast<uint64_t>(dlsym(library, "ompi_mpi_byte"));
  }

  MpiSettings settings_;
  int next_tag_ = 1;
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_COMM_PROCESS_MPI_H_
