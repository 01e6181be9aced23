// Rendezvous where the name of rank 0's host is not what it is elsewhere, in a
// namespace with an /etc/hosts of its own.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "csrc/comm/net/addresses.h"
#include "csrc/comm/rendezvous/rendezvous.h"
#include "csrc/testing/run_ranks.h"
#include "tests/cpp/comm/rendezvous_peer.h"

namespace keras_ring {
namespace {

constexpr int kNoNamespaces = 77;
constexpr char kHost[] = "head-node";

class RendezvousNamesTest : public testing::Test {
 protected:
  RendezvousNamesTest() : hosts_(testing::TempDir() + "hosts_XXXXXX") {
    close(mkstemp(hosts_.data()));
  }
  ~RendezvousNamesTest() override { unlink(hosts_.c_str()); }

  void WriteHosts(const std::string& text) { std::ofstream(hosts_) << text; }

  // Runs `body` where /etc/hosts is that of WriteHosts; 0 if it returns OK.
  int Run(const std::function<Status()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0 ||
          mount(hosts_.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) {
        _exit(kNoNamespaces);
      }
      const Status status = body();
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
      _exit(status.ok() ? 0 : 1);
    }
    int state = 0;
    KR_CHECK(waitpid(child, &state, 0) == child);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
  }

  RendezvousOptions OptionsOf(int rank) {
    RendezvousOptions options = OptionsOfPeer(rank, 2, listener_, key_);
    options.store_host = kHost;
    options.store_listen_fd = -1;
    return options;
  }

  // Two ranks of this host meet; `check` gets the mesh of rank 0.
  Status Meet(const std::function<Status(StartingMesh&)>& check,
              const std::string& advertised = "") {
    Status statuses[2];
    RunRanks(2, [&](int rank) {
      RendezvousOptions options = OptionsOf(rank);
      if (rank == 0) options.advertise_host = advertised;
      auto mesh = Rendezvous(options, Soon(), counters_);
      statuses[rank] = mesh.status();
      if (mesh.ok() && rank == 0) statuses[rank] = check(**mesh);
      if (mesh.ok()) {
        Status started = (*mesh)->StartBarrier(statuses[rank]);
        if (statuses[rank].ok()) statuses[rank] = started;
      }
    });
    return statuses[0].ok() ? statuses[1] : statuses[0];
  }

  uint16_t port() const { return listener_.port; }
  void FreePort() { listener_.socket.Close(); }

 private:
  std::string hosts_;
  const JobKey key_ = NewKey();
  Counters counters_;
  TestListener listener_;
};

#define EXPECT_RUNS(code)                                            \
  const int ended = code;                                            \
  if (ended == kNoNamespaces) GTEST_SKIP() << "no namespaces there"; \
  EXPECT_EQ(ended, 0)

// Debian's /etc/hosts. Ranks of other hosts come to another address of rank
// 0's, and to one of rank 1's which is not loopback.
TEST_F(RendezvousNamesTest, AHostMayBeLoopbackToItself) {
  WriteHosts("127.0.1.1 head-node\n");
  FreePort();
  EXPECT_RUNS(Run([&] {
    const std::string outside = OutsideAddress();
    if (outside.empty()) return OkStatus();
    return Meet([&](StartingMesh& mesh) -> Status {
      KR_RETURN_IF_ERROR(Connect(outside, port(), Soon()).status());
      const Member& other = mesh.members()[1];
      if (other.address != outside) return InternalError(other.address);
      return Connect(outside, other.port, Soon()).status();
    });
  }));
}

// KERAS_RING_INTERFACE of rank 0.
TEST_F(RendezvousNamesTest, RankZeroIsWhereItSaysThatItIs) {
  WriteHosts("127.0.1.1 head-node\n");
  FreePort();
  EXPECT_RUNS(Run([&] {
    return Meet(
        [&](StartingMesh& mesh) -> Status {
          const Member& own = mesh.members()[0];
          if (own.address != "127.0.0.9") return InternalError(own.address);
          return Connect(own.address, own.port, Soon()).status();
        },
        "127.0.0.9");
  }));
}

// A cluster that publishes the names of its hosts once they have started.
TEST_F(RendezvousNamesTest, ANameMayBecomeKnownLate) {
  WriteHosts("# nobody\n");
  FreePort();
  EXPECT_RUNS(Run([&] {
    std::thread publisher([&] {
      Pause(std::chrono::milliseconds(500), Soon());
      WriteHosts("127.0.0.1 head-node\n");
    });
    const Status status = Meet([](StartingMesh&) { return OkStatus(); });
    publisher.join();
    return status;
  }));
}

TEST_F(RendezvousNamesTest, ANameThatStaysUnknownIsSaidAtTheEnd) {
  Counters counters;
  const RendezvousOptions options = OptionsOf(1);
  const TimePoint began = std::chrono::steady_clock::now();
  const Status status = Rendezvous(options, AfterMs(400), counters).status();
  EXPECT_GE(std::chrono::steady_clock::now() - began,
            std::chrono::milliseconds(300));
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message().rfind(
                "rank 0 did not come to head-node:" + std::to_string(port()) +
                    " in time: cannot resolve the host 'head-node': ",
                0),
            0u)
      << status.message();
}

}  // namespace
}  // namespace keras_ring
