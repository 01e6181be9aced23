// A rank that meets the others on loopback.
#ifndef KERAS_RING_TESTS_COMM_RENDEZVOUS_PEER_H_
#define KERAS_RING_TESTS_COMM_RENDEZVOUS_PEER_H_

#include "csrc/comm/rendezvous/rendezvous.h"
#include "tests/cpp/comm/loopback.h"

namespace keras_ring {

// Of rank `rank` in a job of `size` whose rank 0 listens at `listener`.
inline RendezvousOptions OptionsOfPeer(int rank, int size,
                                       const TestListener& listener,
                                       const JobKey& key) {
  RendezvousOptions options;
  options.rank = rank;
  options.size = size;
  options.store_host = "127.0.0.1";
  options.store_port = listener.port;
  if (rank == 0) options.store_listen_fd = listener.socket.fd();
  options.key = key;
  return options;
}

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_COMM_RENDEZVOUS_PEER_H_
