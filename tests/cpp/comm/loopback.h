// What the tests of comm have in common: sockets on loopback, and the count of
// open descriptors.
#ifndef KERAS_RING_TESTS_COMM_LOOPBACK_H_
#define KERAS_RING_TESTS_COMM_LOOPBACK_H_

#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/link.h"
#include "csrc/comm/net/socket.h"

namespace keras_ring {

// Long enough for any machine; a test that reaches it has failed.
inline Deadline Soon() { return Deadline::AfterSeconds(20); }

inline Deadline AfterMs(int ms) {
  return Deadline::After(std::chrono::milliseconds(ms));
}

// Waits until `condition` holds; false when it does not in time.
inline bool Eventually(const std::function<bool()>& condition,
                       Deadline deadline = Soon()) {
  while (!condition()) {
    if (deadline.expired()) return false;
    Pause(std::chrono::milliseconds(1), deadline);
  }
  return true;
}

struct TestListener {
  TestListener() {
    Result<Socket> made = Listen("127.0.0.1", 0);
    KR_CHECK(made.ok());
    socket = std::move(made).value();
    port = *LocalPort(socket);
  }
  Socket socket;
  uint16_t port = 0;
};

// A port at which nobody listens, and which the system gives to nobody else.
// Listen may take it; a port that was free a moment ago may not be any more.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // As Listen does: then both may be bound.
    const int on = 1;
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    KR_CHECK(setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &on,
                        sizeof(on)) == 0);
    KR_CHECK(bind(socket_.fd(), reinterpret_cast<sockaddr*>(&address),
                  sizeof(address)) == 0);
    port = *LocalPort(socket_);
  }
  uint16_t port = 0;

 private:
  Socket socket_;
};

// Two connected TCP sockets.
inline std::pair<Socket, Socket> ConnectedPair() {
  TestListener listener;
  Result<Socket> first = Connect("127.0.0.1", listener.port, Soon());
  KR_CHECK(first.ok());
  KR_CHECK(WaitFor(listener.socket, POLLIN, Soon()).ok());
  Result<Socket> second = Accept(listener.socket);
  KR_CHECK(second.ok() && second->valid());
  return {std::move(first).value(), std::move(second).value()};
}

// links[rank][peer], for every pair.
inline std::vector<Links> ConnectedMesh(int size) {
  std::vector<Links> links(size);
  for (int a = 0; a < size; ++a) {
    for (int b = a + 1; b < size; ++b) {
      auto [first, second] = ConnectedPair();
      links[a][b] = Link(std::move(first));
      links[b][a] = Link(std::move(second));
    }
  }
  return links;
}

inline JobKey NewKey() {
  Result<JobKey> key = JobKey::Random();
  KR_CHECK(key.ok());
  return *key;
}

inline int OpenDescriptors() {
  DIR* directory = opendir("/proc/self/fd");
  KR_CHECK(directory != nullptr);
  int count = 0;
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// A test whose descriptors are all closed when it ends.
class DescriptorTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(OpenDescriptors(), before_); }

 private:
  const int before_ = OpenDescriptors();
};

}  // namespace keras_ring

#endif  // KERAS_RING_TESTS_COMM_LOOPBACK_H_
