// How long rank 0 takes to bring a large job together, and what it costs it.
//
//   build/core/benchmarks/rendezvous_benchmark [RANKS] [RANKS_PER_HOST]
//   [direct] [missing]
//
// Rank 0 is the real one; the others are a second process, each with a real
// way to the store, by the relay of its host, and no more. `direct`: without
// relays. `missing`: one rank does not come.
#include "csrc/comm/rendezvous/rendezvous.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "csrc/base/counters.h"
#include "csrc/base/deadline.h"
#include "csrc/comm/net/descriptor_limit.h"
#include "csrc/comm/net/handshake.h"
#include "csrc/comm/net/socket.h"
#include "csrc/comm/rendezvous/member_record.h"
#include "csrc/comm/rendezvous/start_agreement.h"
#include "csrc/comm/rendezvous/store_access.h"
#include "csrc/comm/store/tcp_store.h"

namespace keras_ring {
namespace {

constexpr char kKey[] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr int kThreads = 256;
constexpr double kTimeout = 60.0;

struct Job {
  int ranks = 4096;
  int ranks_per_host = 8;
  bool by_host = true;
  bool missing = false;
};

TimePoint Now() { return std::chrono::steady_clock::now(); }

double SecondsSince(TimePoint began) {
  return std::chrono::duration<double>(Now() - began).count();
}

std::vector<std::string> Fingerprint() {
  return {"tensorflow=2.21.0",
          "keras=3.15.0",
          "python=3.11.7",
          "keras_ring=0.1.0",
          "process_sets=",
          "KERAS_RING_FUSION_THRESHOLD=67108864",
          "KERAS_RING_CACHE_CAPACITY=65536"};
}

// An address as a rank has it: its host's.
MemberRecord RecordOf(int rank, const Job& job) {
  const int host = rank / job.ranks_per_host;
  MemberRecord record;
  record.rank = rank;
  record.size = job.ranks;
  record.member.host_id = "0f8fad5b-d9cb-469f-a165-70867728950e-" +
                          std::to_string(4026531840 + host);
  record.member.host = "node" + std::to_string(host);
  record.member.address = "10.1." + std::to_string(host / 250) + "." +
                          std::to_string(host % 250 + 1);
  record.member.port = static_cast<uint16_t>(30000 + rank % job.ranks_per_host);
  record.member.pid = 100000 + rank;
  record.target = 0x9e3779b97f4a7c15u * (rank + 1);
  record.fingerprint = Fingerprint();
  return record;
}

RendezvousOptions OptionsOf(int rank, const Job& job, uint16_t port) {
  RendezvousOptions options;
  options.rank = rank;
  options.size = job.ranks;
  options.store_host = "127.0.0.1";
  options.store_port = port;
  options.key = *JobKey::FromHex(kKey);
  options.host_id = RecordOf(rank, job).member.host_id;
  return options;
}

void Check(const Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  std::_Exit(1);
}

// Calls `body` with each of the other ranks, from many threads.
template <typename Body>
void ForEachOther(const Job& job, const Body& body) {
  std::atomic<int> next = 1;
  std::vector<std::thread> threads;
  for (int i = 0; i < std::min(kThreads, job.ranks - 1); ++i) {
    threads.emplace_back([&] {
      for (int rank = next++; rank < job.ranks; rank = next++) {
        if (job.missing && rank == job.ranks / 2) continue;
        body(rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void RunOthers(const Job& job, uint16_t port) {
  const Deadline deadline = Deadline::AfterSeconds(kTimeout + 20);
  // A relay has both ends of its clients' connections, and a few more.
  Check(MakeRoomForDescriptors(job.by_host ? 4 * job.ranks : job.ranks,
                               "the other ranks"),
        "limit");
  std::vector<StoreAccess> accesses(job.ranks);
  Counters counters;
  std::vector<uint64_t> asked(job.ranks);
  std::atomic<size_t> bytes = 0;  // of the table, that rank 0 sends
  std::atomic<int> connections = 0;
  const TimePoint began = Now();
  ForEachOther(job, [&](int rank) {
    const MemberRecord record = RecordOf(rank, job);
    RendezvousOptions options = OptionsOf(rank, job, port);
    options.by_host = job.by_host;
    auto access = ReachStore(options, deadline, counters);
    Check(access.status(), "connect");
    accesses[rank] = std::move(access).value();
    TcpStoreClient& store = *accesses[rank].store;
    Check(store.Set(JoinKey(record), Encode(record), deadline), "set");
    asked[rank] = store.BeginList(kTableKey, 1);
  });
  std::printf("joined          %8.3f s\n", SecondsSince(began));
  ForEachOther(job, [&](int rank) {
    Result<StoreEntries> entries =
        accesses[rank].store->EndList(asked[rank], deadline);
    Check(entries.status(), "table");
    if (!job.by_host || accesses[rank].relay != nullptr) {
      bytes += entries->begin()->second.size();
      ++connections;
    }
    // What each rank does for itself, this process would do for all of them.
    if (rank == 1) {
      JobTable table;
      if (!Decode(entries->begin()->second, &table)) std::_Exit(1);
      if (!table.status.ok()) {
        std::printf("verdict         %s\n", table.status.message().c_str());
      }
    }
    if (!job.missing) asked[rank] = AskForVerdict(*accesses[rank].store);
  });
  std::printf(
      "have the table  %8.3f s, %d connections to rank 0, %.1f MB from it\n",
      SecondsSince(began), connections.load(), bytes / 1e6);
  // A relay waits for those that have not left it.
  auto leave = [&accesses] {
    for (StoreAccess& access : accesses) access.store.reset();
  };
  if (job.missing) return leave();
  const std::string well = Encode(JobTable());
  ForEachOther(job, [&](int rank) {
    Check(accesses[rank].store->Set(StartedKey(rank), well, deadline),
          "started");
  });
  ForEachOther(job, [&](int rank) {
    Check(accesses[rank].store->EndList(asked[rank], deadline).status(),
          "verdict");
  });
  std::printf("started         %8.3f s\n", SecondsSince(began));
  leave();
  std::fflush(stdout);
}

int Run(const Job& job) {
  Result<Socket> listener = Listen("127.0.0.1", 0);
  Check(listener.status(), "listen");
  const uint16_t port = *LocalPort(*listener);
  const pid_t child = fork();
  if (child == 0) {
    RunOthers(job, port);
    std::fflush(stdout);
    std::_Exit(0);
  }
  rusage before = {};
  getrusage(RUSAGE_SELF, &before);
  RendezvousOptions options = OptionsOf(0, job, port);
  options.store_listen_fd = listener->fd();
  options.fingerprint = Fingerprint();
  Counters counters;
  auto mesh = Rendezvous(
      options, Deadline::AfterSeconds(job.missing ? 10 : kTimeout), counters);
  if (!job.missing) {
    Check(mesh.status(), "rendezvous");
    Check((*mesh)->StartBarrier(OkStatus()), "start");
  }
  int state = 0;
  waitpid(child, &state, 0);
  rusage after = {};
  getrusage(RUSAGE_SELF, &after);
  auto seconds = [](const timeval& time) {
    return time.tv_sec + 1e-6 * time.tv_usec;
  };
  std::printf("rank 0: cpu     %8.3f s\n",
              seconds(after.ru_utime) + seconds(after.ru_stime) -
                  seconds(before.ru_utime) - seconds(before.ru_stime));
  std::printf("rank 0: memory  %8.1f MiB more at its peak\n",
              (after.ru_maxrss - before.ru_maxrss) / 1024.0);
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}

}  // namespace
}  // namespace keras_ring

int main(int argc, char** argv) {
  keras_ring::Job job;
  if (argc > 1) job.ranks = std::atoi(argv[1]);
  if (argc > 2) job.ranks_per_host = std::atoi(argv[2]);
  bool understood = true;
  for (int i = 3; i < argc; ++i) {
    if (std::strcmp(argv[i], "direct") == 0) {
      job.by_host = false;
    } else if (std::strcmp(argv[i], "missing") == 0) {
      job.missing = true;
    } else {
      understood = false;
    }
  }
  if (!understood || job.ranks < 2 || job.ranks_per_host < 1) {
    std::fprintf(stderr,
                 "usage: %s [RANKS] [RANKS_PER_HOST] [direct] [missing]\n",
                 argv[0]);
    return 2;
  }
  return keras_ring::Run(job);
}
